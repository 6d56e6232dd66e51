// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"io"
	"sync"

	"golang.org/x/net/http2"
)

// conn is an HTTP/2 connection that sends additional frames between the frames of Go's
// server, which uses it.
type conn struct {
	*tls.Conn
	// records is below tls.Conn.
	records *records
	client  *client

	reading bufio.Reader
	// left is the unread part of a frame, including its header; acks counts acknowledged
	// settings.
	left, acks int

	writing sync.Mutex
	out     frames
	waiting []byte // complete frames to send between two frames of the server
}

var _ frameWriter = &conn{}

func newConn(tlsConn *tls.Conn, client *client) *conn {
	c := &conn{Conn: tlsConn, client: client, left: len(clientPreface)}
	c.records, _ = tlsConn.NetConn().(*records)
	c.reading.Reset(tlsConn)
	return c
}

// Read reads from the client, except acknowledgements of settings that the server has not
// sent: Go's server treats them as an error.
func (c *conn) Read(p []byte) (int, error) {
	for c.left == 0 {
		header, err := c.reading.Peek(frameHeaderLength)
		if err != nil {
			return 0, err
		}
		if isSettingsAck(header) {
			// Go's server sends settings once, and before limit does.
			if c.acks++; c.acks > 1 {
				if _, err := c.reading.Discard(frameHeaderLength); err != nil {
					return 0, err
				}
				continue
			}
		}
		if isPingAck(header) {
			// Go's server sends no pings.
			c.client.pong()
		}
		c.left = frameHeaderLength + payloadLength(header)
	}
	n, err := c.reading.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// Write writes frames, or parts of them, of the HTTP/2 server.
func (c *conn) Write(p []byte) (written int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.records != nil && len(p) > maxRecord {
		c.records.hold()
		defer func() {
			if sendErr := c.records.send(); err == nil {
				err = sendErr
			}
		}()
	}
	for written < len(p) {
		if err := c.flush(); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(p[written : written+c.next(p[written:])])
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, c.flush()
}

// next returns how much of p to write: all of it, or up to the end of its first frame if
// frames are waiting.
func (c *conn) next(p []byte) int {
	if len(c.waiting) > 0 {
		return c.out.advance(p)
	}
	for taken := 0; taken < len(p); {
		taken += c.out.advance(p[taken:])
	}
	return len(p)
}

// limit sets the maximum of concurrent streams.
func (c *conn) limit(streams int) {
	if streams < c.client.streams {
		c.put(limitStreams(streams))
	}
}

// ping sends a PING, which the client answers.
func (c *conn) ping() { c.put(ping) }

// goAway sends a GOAWAY: the client opens no more streams.
func (c *conn) goAway() { c.put(goAway) }

// put writes a frame as soon as the server is between two of its frames.
func (c *conn) put(frame []byte) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.waiting = append(c.waiting, frame...)
	// The server that uses the connection detects write errors.
	_ = c.flush()
}

// flush writes the waiting frames if another frame may follow here. It needs the lock.
func (c *conn) flush() error {
	if len(c.waiting) == 0 || !c.out.between() {
		return nil
	}
	frames := c.waiting
	c.waiting = nil
	n, err := c.Conn.Write(frames)
	if err == nil && n < len(frames) {
		err = io.ErrShortWrite
	}
	return err
}

// clientPreface precedes a client's first frame.
const clientPreface = http2.ClientPreface

// frameHeaderLength is the same for all frames of HTTP/2.
const frameHeaderLength = 9

// goAway is a GOAWAY frame that excludes no stream that is open or in flight: its last
// stream is the highest possible.
var goAway = []byte{
	0, 0, 8, byte(http2.FrameGoAway), 0, 0, 0, 0, 0,
	0x7f, 0xff, 0xff, 0xff,
	0, 0, 0, byte(http2.ErrCodeNo),
}

// ping is a PING frame.
var ping = []byte{0, 0, 8, byte(http2.FramePing), 0, 0, 0, 0, 0, 'a', 'n', 'n', 'e', 'x', 0, 0, 0}

// limitStreams returns a SETTINGS frame that limits concurrent streams.
func limitStreams(streams int) []byte {
	frame := []byte{0, 0, 6, byte(http2.FrameSettings), 0, 0, 0, 0, 0}
	frame = binary.BigEndian.AppendUint16(frame, uint16(http2.SettingMaxConcurrentStreams))
	return binary.BigEndian.AppendUint32(frame, uint32(streams))
}

// isSettingsAck reports whether a frame with this header acknowledges settings.
func isSettingsAck(header []byte) bool {
	return http2.FrameType(header[3]) == http2.FrameSettings && http2.Flags(header[4]).Has(http2.FlagSettingsAck)
}

// isPingAck reports whether a frame with this header answers a ping.
func isPingAck(header []byte) bool {
	return http2.FrameType(header[3]) == http2.FramePing && http2.Flags(header[4]).Has(http2.FlagPingAck)
}

// payloadLength returns the length of the payload after a header.
func payloadLength(header []byte) int {
	return int(header[0])<<16 | int(header[1])<<8 | int(header[2])
}

// frames tracks a stream of frames that is written in pieces, to find where another frame
// can be inserted.
type frames struct {
	header [frameHeaderLength]byte
	// have bytes of the current header were written, and left bytes of its payload were not.
	have, left int
	seen       bool
}

// between reports whether another frame may follow: after the settings, which are always
// first, and not within a header block.
func (f *frames) between() bool {
	if !f.seen || f.have != 0 || f.left != 0 {
		return false
	}
	switch http2.FrameType(f.header[3]) {
	case http2.FrameHeaders, http2.FramePushPromise, http2.FrameContinuation:
		// The flag has the same value in all three.
		return http2.Flags(f.header[4]).Has(http2.FlagHeadersEndHeaders)
	default:
		return true
	}
}

// advance consumes p up to the end of a frame and returns the number of bytes.
func (f *frames) advance(p []byte) int {
	taken := 0
	for taken < len(p) {
		if f.left > 0 {
			n := min(f.left, len(p)-taken)
			f.left -= n
			taken += n
		} else {
			n := copy(f.header[f.have:], p[taken:])
			f.have += n
			taken += n
			if f.have < frameHeaderLength {
				return taken
			}
			f.left = payloadLength(f.header[:])
		}
		if f.left == 0 {
			f.have, f.seen = 0, true
			return taken
		}
	}
	return taken
}
