// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// clientPreface comes before a client's first frame.
const clientPreface = http2.ClientPreface

// frameHeaderLength is the same for all frames of HTTP/2.
const frameHeaderLength = 9

// farewell is a GOAWAY frame that asks to open no more streams here, and excludes
// none that is open or on the way: its last stream is the highest there can be.
var farewell = []byte{
	0, 0, 8, byte(http2.FrameGoAway), 0, 0, 0, 0, 0,
	0x7f, 0xff, 0xff, 0xff,
	0, 0, 0, byte(http2.ErrCodeNo),
}

// ping is a PING frame.
var ping = []byte{0, 0, 8, byte(http2.FramePing), 0, 0, 0, 0, 0, 'a', 'n', 'n', 'e', 'x', 0, 0, 0}

// limitStreams is a SETTINGS frame that limits how many streams the client may have.
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

// payloadLength is how long the payload is that follows a header.
func payloadLength(header []byte) int {
	return int(header[0])<<16 | int(header[1])<<8 | int(header[2])
}

// frames follows a stream of frames that comes in pieces, to know where one more
// may be put in.
type frames struct {
	header [frameHeaderLength]byte
	// have is how much of the current header was seen, left how much of the
	// payload after it was not.
	have, left int
	seen       bool
}

// between reports whether another frame may follow here: after the settings, which
// are always the first, and not within a header block.
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

// advance takes bytes of p to the end of a frame, or all, and returns how many.
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
