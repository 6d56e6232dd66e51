// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

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
	// have is how much of the current header was written, left how much of its payload
	// was not.
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
