package sqlitefile

// setOpenFileLock is F_OFD_SETLK of the system's <sys/fcntl.h>, which
// golang.org/x/sys does not list.
const setOpenFileLock = 90
