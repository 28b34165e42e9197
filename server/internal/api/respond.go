package api

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// respond sends data, a JSON object, in the envelope of a success.
func (c *call) respond(status int, data []byte) error {
	body := make([]byte, 0, len(data)+64)
	body = append(append(append(body, `{"request_id":"`...), c.id.String()...), `","data":`...)
	body = append(append(body, data...), '}')
	c.send(status, body)
	return nil
}

// refuse logs an error and answers it.
func (c *call) refuse(err error) {
	e, foreseen := refusalOf(err)
	if !foreseen {
		c.logFailure(err)
	}
	c.logRefusal(e.status, e.code, Pattern(c.r))
	c.respondRefusal(e)
}

func (c *call) respondRefusal(e *refusal) {
	h := c.w.Header()
	if e.retryAfter > 0 {
		h.Set("Retry-After", seconds(e.retryAfter))
	}
	if e.allow != "" {
		h.Set("Allow", e.allow)
	}
	if e.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer") // RFC 9110 wants one
	}
	body := append([]byte(`{"request_id":"`), c.id.String()...)
	body = append(append(body, `","error":`...), e.appendJSON(nil)...)
	c.send(e.status, append(body, '}'))
}

// appendJSON appends the error object.
func (e *refusal) appendJSON(dst []byte) []byte {
	text, err := json.Marshal(struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}{e.code, e.message})
	if err != nil {
		panic(err) // two strings can always be written
	}
	return append(dst, text...)
}

func (c *call) send(status int, body []byte) {
	c.answered, c.status = true, status
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	c.w.WriteHeader(status)
	c.w.Write(body) // a client that has gone is nobody's error
}
