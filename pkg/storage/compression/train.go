// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"encoding/binary"
	"fmt"
)

const (
	minDictionary, maxDictionary = 4 << 10, 32 << 10

	// What a dictionary is made of are pieces of objects. Text that many objects
	// share in one piece wants long ones, text that is scattered wants short ones;
	// which it is, is found out.
	shortPiece, mediumPiece, longPiece = 256, 1024, 4096

	// A dictionary has to pay for being read by every replica, and must not cost
	// more than it saves: it is a tenth of the objects at the most.
	dictionaryShare = 10

	// worthwhile is the part of the space now needed that a new dictionary has to
	// save.
	worthwhile = 0.1

	// heldOut is the part of the samples, one of so many, that a dictionary does
	// not get to see and is judged by.
	heldOut = 5
)

// train makes the best dictionary for what samples are samples of, total bytes in
// all, or returns nil if none is clearly better than the one that is in use.
func train(samples [][]byte, total int64, inUse *dictionary) (*dictionary, error) {
	var seen, unseen [][]byte
	for i, sample := range samples {
		if i%heldOut == 0 {
			unseen = append(unseen, sample)
		} else {
			seen = append(seen, sample)
		}
	}
	now, err := cost(inUse, unseen)
	if err != nil {
		return nil, err
	}
	size := int(max(minDictionary, min(maxDictionary, total/dictionaryShare)))
	var best *dictionary
	least := int(float64(now) * (1 - worthwhile))
	for _, piece := range []int{shortPiece, mediumPiece, longPiece} {
		content := cover(seen, size, piece)
		if len(content) < minDictionary/2 {
			continue
		}
		candidate := trained(content)
		needs, err := cost(candidate, unseen)
		if err != nil {
			return nil, err
		}
		if needs <= least {
			best, least = candidate, needs
		}
	}
	return best, nil
}

// cost is the space that samples need with a dictionary.
func cost(d *dictionary, samples [][]byte) (int, error) {
	// An encoder of its own: those that are shared are for requests.
	encoder, err := newEncoder(d)
	if err != nil {
		return 0, fmt.Errorf("try dictionary %d: %w", d.id, err)
	}
	sum := 0
	var value []byte
	for _, sample := range samples {
		value = encoder.EncodeAll(sample, value[:0])
		sum += len(magic) + len(value)
	}
	return sum, nil
}

const (
	// gram is the length of the text that is counted: a shorter match saves little.
	gram = 8
	// gramBits is how many different ones are told apart.
	gramBits = 18
)

func gramHash(text []byte) uint32 {
	const prime = 0xcf1bbcdcb7a56463
	return uint32(binary.LittleEndian.Uint64(text) * prime >> (64 - gramBits))
}

// cover returns the text of at most size bytes, put together from pieces of
// samples, that has most of what several samples contain. The best is at the end,
// where it is cheapest to refer to.
//
// It goes round the samples, takes from each group of them the piece that says
// most of what no piece before it said, and ends when there is none.
func cover(samples [][]byte, size, piece int) []byte {
	counts := countGrams(samples)
	groups := max(1, min(len(samples), size/piece))
	within := make([]uint16, 1<<gramBits)
	content := make([]byte, size)
	free, fruitless := size, 0
	for at := 0; free >= gram && fruitless < groups; at = (at + 1) % groups {
		group := samples[at*len(samples)/groups : (at+1)*len(samples)/groups]
		best, says := []byte(nil), 0
		for _, sample := range group {
			if found, sum := bestPiece(sample, min(piece, free), counts, within); sum > says {
				best, says = found, sum
			}
		}
		if says == 0 {
			fruitless++
			continue
		}
		fruitless = 0
		for i := range len(best) - gram + 1 {
			counts[gramHash(best[i:])] = 0
		}
		free -= len(best)
		copy(content[free:], best)
	}
	return content[free:]
}

// countGrams counts in how many samples each gram is; those of one sample only say
// nothing about others.
func countGrams(samples [][]byte) []uint32 {
	counts, last := make([]uint32, 1<<gramBits), make([]uint32, 1<<gramBits)
	for i, sample := range samples {
		number := uint32(i) + 1
		for at := 0; at+gram <= len(sample); at++ {
			if hash := gramHash(sample[at:]); last[hash] != number {
				last[hash] = number
				counts[hash]++
			}
		}
	}
	for hash := range counts {
		if counts[hash] == 1 {
			counts[hash] = 0
		}
	}
	return counts
}

// bestPiece is the part of a sample, of at most the length of a piece, whose grams
// count most, each of them once. within is scratch, and all zero before and after.
func bestPiece(sample []byte, piece int, counts []uint32, within []uint16) (best []byte, says int) {
	begin, sum := 0, 0
	for at := 0; at+gram <= len(sample); at++ {
		hash := gramHash(sample[at:])
		if within[hash] == 0 {
			sum += int(counts[hash])
		}
		within[hash]++
		if at+gram-begin > piece {
			hash := gramHash(sample[begin:])
			if within[hash]--; within[hash] == 0 {
				sum -= int(counts[hash])
			}
			begin++
		}
		if sum > says {
			best, says = sample[begin:at+gram], sum
		}
	}
	for ; begin+gram <= len(sample); begin++ {
		within[gramHash(sample[begin:])] = 0
	}
	return best, says
}
