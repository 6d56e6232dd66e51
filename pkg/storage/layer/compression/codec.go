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

func compress(d *Dictionary, data []byte) ([]byte, error) {
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
func decompress(d *Dictionary, value []byte, h header) ([]byte, error) {
	if err := checkSize(value, h); err != nil {
		return nil, err
	}
	data, err := d.Decompress(newBuffer(h.plain), value[len(magic):])
	if err != nil {
		return nil, err
	}
	if uint64(len(data)) != h.plain {
		return nil, fmt.Errorf("%w: it has %d bytes, want %d", errDamaged, len(data), h.plain)
	}
	return data, nil
}

// Compress compresses data that stays in memory. It returns false if the result is hardly shorter.
func (d *Dictionary) Compress(data []byte) (compressed []byte, ok bool, err error) {
	if len(data) < minSize || len(data) > MaxPlainSize {
		return nil, false, nil
	}
	value, err := compress(d, data)
	if err != nil || !worthwhile(value, data) {
		return nil, false, err
	}
	return value[len(magic):], true, nil
}

// Decompress appends the data of a compressed value to a buffer.
func (d *Dictionary) Decompress(buffer, compressed []byte) ([]byte, error) {
	decoder, err := decoders.take(d)
	if err != nil {
		return buffer, fmt.Errorf("decompress with dictionary %d: %w", d.id, err)
	}
	result, err := decoder.DecodeAll(compressed, buffer)
	// A decoder retains its last result.
	if len(result)-len(buffer) <= maxRetained {
		decoders.put(decoder, d)
	} else {
		decoders.drop()
	}
	if err != nil {
		return buffer, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return result, nil
}

// worthwhile reports whether compression saves at least a sixteenth.
func worthwhile(value, data []byte) bool { return len(value) < len(data)-len(data)/16 }

func newEncoder(d *Dictionary) (*zstd.Encoder, error) {
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

func changeEncoder(encoder *zstd.Encoder, d *Dictionary) error {
	return encoder.ResetWithOptions(nil, zstd.WithEncoderDictRaw(d.id, d.content))
}

func newDecoder(d *Dictionary) (*zstd.Decoder, error) {
	return zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxMemory(MaxPlainSize),
		zstd.WithDecoderMaxWindow(MaxPlainSize),
		zstd.WithDecoderDictRaw(d.id, d.content),
	)
}

func changeDecoder(decoder *zstd.Decoder, d *Dictionary) error {
	return decoder.ResetWithOptions(nil, zstd.WithDecoderDictDelete(), zstd.WithDecoderDictRaw(d.id, d.content))
}

// pool caches up to limit coders with the dictionary they are set to, because setting it
// takes longer than coding a value.
type pool[T any] struct {
	limit  int
	make   func(*Dictionary) (T, error)
	change func(T, *Dictionary) error

	mu   sync.Mutex
	free *sync.Cond
	made int
	// idle is in order of last use.
	idle []idleCoder[T]
}

type idleCoder[T any] struct {
	coder      T
	dictionary *Dictionary
}

// take returns a coder for a dictionary. It waits while all are in use.
func (p *pool[T]) take(d *Dictionary) (T, error) {
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
func (p *pool[T]) put(coder T, d *Dictionary) {
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
