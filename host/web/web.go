// Package web has the files that a gateway serves to pages: its client module
// and the types of that. They need nothing else, and a page needs nothing else.
package web

import _ "embed"

// Client is the client of a gateway as a JavaScript module, for pages and for
// Node 18 or newer.
//
//go:embed client.js
var Client string

// ClientTypes are the TypeScript declarations of what Client has.
//
//go:embed client.d.ts
var ClientTypes string
