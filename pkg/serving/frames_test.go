// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/http2"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// sample has the frames that a server writes, and whether another may follow each.
func sample(t *testing.T) (stream []byte, places map[int]bool) {
	t.Helper()
	var buffer bytes.Buffer
	framer := http2.NewFramer(&buffer, nil)
	places = map[int]bool{}
	for _, step := range []struct {
		write func() error
		place bool
	}{
		{func() error {
			return framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1000})
		}, true},
		{framer.WriteSettingsAck, true}, // no payload
		{func() error {
			return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("abc")})
		}, false},
		{func() error { return framer.WriteContinuation(1, false, nil) }, false},
		{func() error { return framer.WriteContinuation(1, true, []byte("def")) }, true},
		{func() error { return framer.WriteData(1, false, make([]byte, 70000)) }, true},
		{func() error { return framer.WriteData(1, true, nil) }, true},
		{func() error {
			return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, EndHeaders: true, EndStream: true})
		}, true},
		{func() error { return framer.WritePing(true, [8]byte{}) }, true},
	} {
		expect.NoError(t, step.write())
		places[buffer.Len()] = step.place
	}
	return buffer.Bytes(), places
}

func TestFramesInPieces(t *testing.T) {
	t.Parallel()
	stream, places := sample(t)
	for _, most := range []int{1, 2, 8, 9, 10, 1000, len(stream)} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			var f frames
			if f.between() {
				t.Error("a frame may come before the settings")
			}
			for at := 0; at < len(stream); {
				piece := stream[at:min(len(stream), at+1+rand.IntN(most))]
				for len(piece) > 0 {
					n := f.advance(piece)
					if n == 0 {
						t.Fatalf("nothing taken at %d", at)
					}
					at, piece = at+n, piece[n:]
					if got, want := f.between(), places[at]; got != want {
						t.Fatalf("at %d another frame may follow: %v, want %v", at, got, want)
					}
				}
			}
		})
	}
}

func TestGoAway(t *testing.T) {
	t.Parallel()
	frame, err := http2.NewFramer(nil, bytes.NewReader(goAway)).ReadFrame()
	expect.NoError(t, err)
	goAway, ok := frame.(*http2.GoAwayFrame)
	if !ok || goAway.LastStreamID != 1<<31-1 || goAway.ErrCode != http2.ErrCodeNo {
		t.Errorf("it is %v", frame)
	}
}

func TestMaxStreamsIsTheLimit(t *testing.T) {
	t.Parallel()
	if all := int64(streamBuffer) * MaxStreams; all > 1<<31-1 || all+streamBuffer <= 1<<31-1 {
		t.Errorf("the buffers of %d streams are %d bytes", MaxStreams, all)
	}
}
