// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// window is the distance of back-references. A larger one gains nothing with JSON.
	window = 1 << 20

	// maxRetained is the size of a value that a pooled decoder may retain.
	maxRetained = 64 << 10
)

// encoders and decoders are shared by all resources, because an encoder takes 4 MiB.
var (
	encoders = pool[*zstd.Encoder]{limit: runtime.GOMAXPROCS(0), make: newEncoder, change: changeEncoder}
	decoders = pool[*zstd.Decoder]{limit: 2 * runtime.GOMAXPROCS(0), make: newDecoder, change: changeDecoder}
)

func compress(d *dictionary, data []byte) ([]byte, error) {
	encoder, err := encoders.take(d)
	if err != nil {
		return nil, fmt.Errorf("compress with dictionary %d: %w", d.id, err)
	}
	defer encoders.put(encoder, d)
	// Most values compress to less than a quarter.
	value := append(make([]byte, 0, len(magic)+len(data)/4), magic...)
	return encoder.EncodeAll(data, value), nil
}

// decompress decompresses a value with header h and dictionary d.
func decompress(d *dictionary, value []byte, h header) ([]byte, error) {
	if err := checkSize(value, h); err != nil {
		return nil, err
	}
	decoder, err := decoders.take(d)
	if err != nil {
		return nil, fmt.Errorf("decompress with dictionary %d: %w", d.id, err)
	}
	var data []byte
	defer func() {
		// A decoder retains its last result.
		if len(data) <= maxRetained {
			decoders.put(decoder, d)
		} else {
			decoders.drop()
		}
	}()
	data, err = decoder.DecodeAll(value[len(magic):], newBuffer(h.plain))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if uint64(len(data)) != h.plain {
		return nil, fmt.Errorf("%w: it has %d bytes, want %d", errDamaged, len(data), h.plain)
	}
	return data, nil
}

// worthwhile reports whether compression saves at least a sixteenth.
func worthwhile(value, data []byte) bool { return len(value) < len(data)-len(data)/16 }

func newEncoder(d *dictionary) (*zstd.Encoder, error) {
	return zstd.NewWriter(nil,
		zstd.WithEncoderConcurrency(1),
		// Other levels save a tenth more on values of a few kB, and take at least twice the
		// time.
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(window),
		zstd.WithSingleSegment(true), // includes the size of small values
		zstd.WithEncoderDictRaw(d.id, d.content),
	)
}

func changeEncoder(encoder *zstd.Encoder, d *dictionary) error {
	return encoder.ResetWithOptions(nil, zstd.WithEncoderDictRaw(d.id, d.content))
}

func newDecoder(d *dictionary) (*zstd.Decoder, error) {
	return zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxMemory(MaxPlainSize),
		zstd.WithDecoderMaxWindow(MaxPlainSize),
		zstd.WithDecoderDictRaw(d.id, d.content),
	)
}

func changeDecoder(decoder *zstd.Decoder, d *dictionary) error {
	return decoder.ResetWithOptions(nil, zstd.WithDecoderDictDelete(), zstd.WithDecoderDictRaw(d.id, d.content))
}

// pool caches up to limit coders with the dictionary they are set to, because setting it
// takes longer than coding a value.
type pool[T any] struct {
	limit  int
	make   func(*dictionary) (T, error)
	change func(T, *dictionary) error

	mu   sync.Mutex
	free *sync.Cond
	made int
	// idle is in order of last use.
	idle []idleCoder[T]
}

type idleCoder[T any] struct {
	coder      T
	dictionary *dictionary
}

// take returns a coder for a dictionary. It waits while all are in use.
func (p *pool[T]) take(d *dictionary) (T, error) {
	p.mu.Lock()
	if p.free == nil {
		p.free = sync.NewCond(&p.mu)
	}
	for {
		for i := len(p.idle) - 1; i >= 0; i-- {
			if found := p.idle[i]; found.dictionary.sum == d.sum {
				p.idle = append(p.idle[:i], p.idle[i+1:]...)
				p.mu.Unlock()
				return found.coder, nil
			}
		}
		if p.made < p.limit {
			p.made++
			p.mu.Unlock()
			coder, err := p.make(d)
			if err != nil {
				p.drop()
			}
			return coder, err
		}
		if len(p.idle) > 0 {
			oldest := p.idle[0]
			p.idle = p.idle[1:]
			p.mu.Unlock()
			err := p.change(oldest.coder, d)
			if err != nil {
				p.drop()
			}
			return oldest.coder, err
		}
		p.free.Wait()
	}
}

// put returns a coder.
func (p *pool[T]) put(coder T, d *dictionary) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, idleCoder[T]{coder, d})
	p.free.Signal()
}

// drop discards a coder.
func (p *pool[T]) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made--
	p.free.Signal()
}

// discardIdle frees the memory of idle coders.
func (p *pool[T]) discardIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made -= len(p.idle)
	p.idle = nil
}
