// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bufio"
	"crypto/tls"
	"io"
	"sync"
)

// conn is an HTTP/2 connection into which frames can be put beside those of the
// server that uses it.
type conn struct {
	*tls.Conn
	client *client
	// streams is how many the client may have open, as the server told it.
	streams int

	reading bufio.Reader
	// left is how much of a frame, its header included, has still to be read;
	// acks is how many settings the client has acknowledged.
	left, acks int

	writing sync.Mutex
	out     frames
	waiting []byte // whole frames, for the next place
}

var _ frameWriter = &conn{}

func newConn(tlsConn *tls.Conn, streams int) *conn {
	c := &conn{Conn: tlsConn, client: newClient(), streams: streams, left: len(clientPreface)}
	c.reading.Reset(tlsConn)
	return c
}

// Read reads what the client sent, without its acknowledgement of settings that
// are none of the server's: Go's takes that for an error of the client.
func (c *conn) Read(p []byte) (int, error) {
	for c.left == 0 {
		header, err := c.reading.Peek(frameHeaderLength)
		if err != nil {
			return 0, err
		}
		if isSettingsAck(header) {
			// Go's server sends settings once, and before anybody else.
			if c.acks++; c.acks > 1 {
				if _, err := c.reading.Discard(frameHeaderLength); err != nil {
					return 0, err
				}
				continue
			}
		}
		if isPingAck(header) {
			// Nobody else pings.
			c.client.pong()
		}
		c.left = frameHeaderLength + payloadLength(header)
	}
	n, err := c.reading.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// Write writes frames, or parts of them, of the HTTP/2 server.
func (c *conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	written := 0
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

// next is how much of p to write in one go: all of it, unless there is a frame to
// put in after the first that ends in it.
func (c *conn) next(p []byte) int {
	if len(c.waiting) > 0 {
		return c.out.advance(p)
	}
	for taken := 0; taken < len(p); {
		taken += c.out.advance(p[taken:])
	}
	return len(p)
}

// limit sets how many streams the client may have open.
func (c *conn) limit(streams int) {
	if streams < c.streams {
		c.put(limitStreams(streams))
	}
}

// ping has the client answer.
func (c *conn) ping() { c.put(ping) }

// farewell has the client open no more streams.
func (c *conn) farewell() { c.put(farewell) }

// put writes a frame beside those of the server, as soon as there is a place.
func (c *conn) put(frame []byte) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.waiting = append(c.waiting, frame...)
	// What cannot be written is found out by the server that uses the connection.
	_ = c.flush()
}

// flush writes what waits for a place, if this is one. It needs the lock.
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
