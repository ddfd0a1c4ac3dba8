package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"sess/host/web"
)

// assetsPath is where the parts of the page are. Its operations are for nobody
// else, and the description of the server leaves them out.
const assetsPath = "/assets/"

// pagePolicy lets the page have its own files and this server, and nothing else;
// no text can become markup (see the specifications Content Security Policy Level
// 3 and Trusted Types).
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// The media types of the files that browsers take.
const (
	mimeScript = "text/javascript; charset=utf-8"
	mimeStyle  = "text/css; charset=utf-8"
	mimeIcon   = "image/svg+xml"
)

// mediaType is that of a file that the page has.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".css":
		return mimeStyle
	case ".svg":
		return mimeIcon
	}
	return mimeScript
}

// pageEndpoints serve the page and its parts to everybody: there is nothing of
// the user's in them, and the page asks for the token.
func (s *Server) pageEndpoints() []endpoint {
	page := constant("text/html; charset=utf-8", web.Page)
	all := []endpoint{
		{http.MethodGet, "/", true, func(c echo.Context) error {
			h := c.Response().Header()
			h.Add("Vary", "Accept")
			if !strings.Contains(c.Request().Header.Get("Accept"), "text/html") { // a program
				return s.serveRoot(c)
			}
			h.Set("Content-Security-Policy", pagePolicy)
			return page(c)
		}},
		{http.MethodGet, "/client.js", true, constant(mimeScript, web.Client)},
		{http.MethodGet, "/client.d.ts", true, constant("text/plain; charset=utf-8", web.ClientTypes)},
	}
	files, _ := fs.Glob(web.Assets, "assets/*") // the pattern is a good one
	for _, name := range files {
		content, _ := web.Assets.ReadFile(name) // it is part of the program
		all = append(all, endpoint{http.MethodGet, assetsPath + path.Base(name), true, constant(mediaType(name), content)})
	}
	return all
}

// constant serves what is the same as long as the program is. Who has it already
// asks whether it still is, and is not sent it again.
func constant(kind string, content []byte) echo.HandlerFunc {
	sum := sha256.Sum256(content)
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set(echo.HeaderContentType, kind)
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", tag)
		http.ServeContent(c.Response(), c.Request(), "", time.Time{}, bytes.NewReader(content))
		return nil
	}
}
