package surfaces

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf16"

	"sess/plugin"
)

// HTTPAnswer is what is sent back, but for what belongs to the connection.
type HTTPAnswer struct {
	Status int
	Header map[string]string
	Body   []byte // one JSON document
}

// Render turns an answer into a response. target is the path and query of the
// request, for the link to the next page. A verb that only reads gives its
// data as it is, or its text where it has none, and its notices in the header
// X-Notices; another one gives {"text","data"}, and "notices" where there are
// some.
func (r *HTTPRoute) Render(target string, result plugin.Result, err error) HTTPAnswer {
	if err == nil && result.Data != nil && !json.Valid(result.Data) {
		err = plugin.Errorf(plugin.Internal, "the answer is not JSON")
	}
	if err != nil {
		e := plugin.AsError(err)
		return HTTPAnswer{Status: r.errorStatus(e.Code), Body: HTTPErrorBody(e)}
	}
	answer := HTTPAnswer{Status: r.Status, Header: map[string]string{}}
	if r.Verb.Effect == plugin.EffectRead {
		answer.Body = encodeJSON(readBody(result))
		if notices := NoticesHeader(result.Notices); notices != "" {
			answer.Header["X-Notices"] = notices
		}
		pageHeaders(answer.Header, target, result.Page)
		return answer
	}
	answer.Body = encodeJSON(changeBody{result.Text, result.Data, result.Notices, result.Page})
	return answer
}

// changeBody is the answer of a verb that is not read only.
type changeBody struct {
	Text    string          `json:"text"`
	Data    json.RawMessage `json:"data"`
	Notices []string        `json:"notices,omitempty"`
	Page    *plugin.Page    `json:"page,omitempty"`
}

// readBody is the answer of a verb that only reads.
func readBody(result plugin.Result) any {
	if result.Data == nil && result.Text != "" {
		return result.Text
	}
	return result.Data
}

// errorStatus is the status of an error of this route.
func (r *HTTPRoute) errorStatus(code plugin.Code) int {
	info := code.Info()
	if r.documented && code != plugin.Denied && info.HTTP < 500 {
		return httpBadRequest
	}
	return info.HTTP
}

// HTTPErrorBody is the body of a failed request: {"error","code","text","hint",
// "details"}, where text is the whole text for people.
func HTTPErrorBody(e *plugin.Error) []byte {
	return encodeJSON(struct {
		Error   string            `json:"error"`
		Code    plugin.Code       `json:"code"`
		Text    string            `json:"text"`
		Hint    string            `json:"hint,omitempty"`
		Details map[string]string `json:"details,omitempty"`
	}{e.Message, e.Code, e.Text(), e.Hint, e.Details})
}

// encodeJSON is writeJSON to new memory.
func encodeJSON(v any) []byte {
	var b bytes.Buffer
	writeJSON(&b, v)
	return b.Bytes()
}

// noticesRoom bounds the header with the notices, in bytes: proxies refuse large
// headers.
const noticesRoom = 4000

// NoticesHeader writes notices as a JSON array in ASCII, since a header takes
// nothing else; "" for none. Notices that have no room are counted in the last
// item.
func NoticesHeader(notices []string) string {
	if len(notices) == 0 {
		return ""
	}
	out := ""
	for i, n := range notices {
		item := asciiJSON(n)
		if len(out)+len(item) > noticesRoom {
			out += "," + asciiJSON(fmt.Sprintf("and %d more", len(notices)-i))
			break
		}
		out += "," + item
	}
	return "[" + strings.TrimPrefix(out, ",") + "]"
}

// asciiJSON writes a JSON string with every character beyond ASCII escaped.
func asciiJSON(s string) string {
	var b strings.Builder
	for _, r := range strings.TrimSuffix(string(encodeJSON(s)), "\n") {
		switch {
		case r < 0x7f:
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// pageHeaders tell of the rest of a list: how many items there are in all, and
// where the next ones are (RFC 8288). target is what was requested.
func pageHeaders(header map[string]string, target string, page *plugin.Page) {
	if page == nil {
		return
	}
	header["X-Total-Count"] = strconv.FormatInt(page.Total, 10)
	if page.Next == "" {
		return
	}
	path, query, _ := strings.Cut(target, "?")
	var pairs []string
	for pair := range strings.SplitSeq(query, "&") {
		if key, _, _ := strings.Cut(pair, "="); pair != "" && key != plugin.FlagAfter {
			pairs = append(pairs, pair)
		}
	}
	pairs = append(pairs, plugin.FlagAfter+"="+url.QueryEscape(page.Next))
	link := path + "?" + strings.Join(pairs, "&")
	header["Link"] = "<" + strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22").Replace(link) + `>; rel="next"`
}
