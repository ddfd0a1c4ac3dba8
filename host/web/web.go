// Package web has the files that a gateway serves to browsers: its page, and its
// client as a module for any page, with the types of that. They need nothing else.
package web

import "embed"

// Client is the client of a gateway as a JavaScript module, for pages and for
// Node 18 or newer.
//
//go:embed client.js
var Client []byte

// ClientTypes are the TypeScript declarations of what Client has.
//
//go:embed client.d.ts
var ClientTypes []byte

// Page is the gateway's own page, as HTML. It loads Client, and what is in Assets
// from /assets.
//
//go:embed index.html
var Page []byte

// Assets has the folder assets: the modules, the styles and the icon of Page.
//
//go:embed assets
var Assets embed.FS
