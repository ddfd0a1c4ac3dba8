package supervise

import (
	"fmt"
	"io/fs"
)

// private tells why a folder will not do. Plugins use no socket files here.
func private(path string, info fs.FileInfo) error {
	if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", path)
	}
	return nil
}
