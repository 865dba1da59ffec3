// Go's net/http. See wire.py for the lines.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	timeout = 20 * time.Second
	shown   = 4096
)

type answer struct {
	Status  *int              `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Error   *string           `json:"error"`
}

// paced hands a body out in pieces. net/http closes it when it needs no more of it, and a read may be under way then.
type paced struct {
	body  []byte
	size  int
	pause time.Duration
	begun bool
	left  int
}

func (p *paced) Read(into []byte) (int, error) {
	if len(p.body) == 0 {
		return 0, io.EOF
	}
	if p.left == 0 {
		if p.begun {
			time.Sleep(p.pause)
		}
		p.begun = true
		p.left = p.size
	}
	count := copy(into, p.body[:min(p.left, len(p.body))])
	p.body = p.body[count:]
	p.left -= count
	return count, nil
}

func number(text string) int {
	value, _ := strconv.Atoi(text)
	return value
}

func send(client *http.Client, fields url.Values) (*answer, error) {
	var reader io.Reader
	var length int64
	if fields.Has("head") {
		body := []byte(fields.Get("head") + strings.Repeat("x", number(fields.Get("fill"))) + fields.Get("tail"))
		length = int64(len(body))
		pieces := max(1, number(fields.Get("pieces")))
		if fields.Get("chunked") == "1" || pieces > 1 {
			pause, _ := strconv.ParseFloat(fields.Get("pause"), 64)
			size := (len(body) + pieces - 1) / pieces
			reader = &paced{body: body, size: size, pause: time.Duration(pause * float64(time.Second))}
		} else {
			reader = bytes.NewReader(body)
		}
	}
	request, err := http.NewRequest(fields.Get("method"), fields.Get("url"), reader)
	if err != nil {
		return nil, err
	}
	if reader != nil {
		request.ContentLength = length
		if fields.Get("chunked") == "1" {
			request.ContentLength = -1
		}
	}
	for _, line := range fields["header"] {
		name, value, _ := strings.Cut(line, ": ")
		request.Header.Set(name, value)
	}
	if fields.Get("expect") == "1" {
		request.Header.Set("Expect", "100-continue")
	}
	request.Close = fields.Get("close") == "1"
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	headers := map[string]string{}
	for name := range response.Header {
		headers[strings.ToLower(name)] = response.Header.Get(name)
	}
	return &answer{Status: &response.StatusCode, Headers: headers, Body: string(text[:min(len(text), shown)])}, nil
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	session := ""
	var client *http.Client
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		fields, err := url.ParseQuery(strings.TrimSpace(line))
		if err != nil {
			panic(err)
		}
		if client == nil || session != fields.Get("session") {
			if client != nil {
				client.CloseIdleConnections()
			}
			session = fields.Get("session")
			transport := &http.Transport{ExpectContinueTimeout: time.Second}
			client = &http.Client{Transport: transport, Timeout: timeout}
		}
		told, err := send(client, fields)
		if err != nil {
			text := err.Error()
			told = &answer{Headers: map[string]string{}, Error: &text}
		}
		if err := out.Encode(told); err != nil {
			return
		}
	}
}
