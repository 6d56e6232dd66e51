// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"encoding/binary"
	"fmt"
)

const (
	minDictionary, maxDictionary = 4 << 10, 32 << 10

	// A dictionary consists of pieces of objects. Objects with long common text need long
	// pieces, others short ones: all are tried.
	shortPiece, mediumPiece, longPiece = 256, 1024, 4096

	// dictionaryShare bounds a dictionary to a tenth of the objects, so that it does not
	// cost more than it saves.
	dictionaryShare = 10

	// minSaving is the part of the space that a new dictionary has to save.
	minSaving = 0.1

	// heldOut is the divisor of samples that are used to evaluate a dictionary instead of
	// training it.
	heldOut = 5
)

// train returns the best dictionary for a resource of total bytes, or nil if none is
// better than the one in use by minSaving.
//
// The raw dictionaries of klauspost's dict.BuildRawDict store 7 to 100 % more of the
// benchmark's objects than these, and it panics on equal samples.
func train(samples [][]byte, total int64, inUse *dictionary) (*dictionary, error) {
	var training, evaluation [][]byte
	for i, sample := range samples {
		if i%heldOut == 0 {
			evaluation = append(evaluation, sample)
		} else {
			training = append(training, sample)
		}
	}
	now, err := cost(inUse, evaluation)
	if err != nil {
		return nil, err
	}
	size := int(max(minDictionary, min(maxDictionary, total/dictionaryShare)))
	var best *dictionary
	least := int(float64(now) * (1 - minSaving))
	for _, piece := range []int{shortPiece, mediumPiece, longPiece} {
		content := cover(training, size, piece)
		if len(content) < minDictionary/2 {
			continue
		}
		candidate := trained(content)
		needs, err := cost(candidate, evaluation)
		if err != nil {
			return nil, err
		}
		if needs <= least {
			best, least = candidate, needs
		}
	}
	return best, nil
}

// cost returns the compressed size of samples with a dictionary.
func cost(d *dictionary, samples [][]byte) (int, error) {
	// The pooled encoders are for requests.
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
	// gram is the length of counted text. A shorter match saves little.
	gram = 8
	// gramBits is the size of a gram's hash.
	gramBits = 18
)

func gramHash(text []byte) uint32 {
	const prime = 0xcf1bbcdcb7a56463
	return uint32(binary.LittleEndian.Uint64(text) * prime >> (64 - gramBits))
}

// cover builds a dictionary of at most size bytes from pieces of samples that contain the
// most frequent text. The best piece is at the end, where references are cheapest.
//
// It iterates over groups of samples, and takes from each the piece with the highest count
// of grams that no previous piece contains, until there is none.
func cover(samples [][]byte, size, piece int) []byte {
	counts := countGrams(samples)
	groups := max(1, min(len(samples), size/piece))
	within := make([]uint16, 1<<gramBits)
	content := make([]byte, size)
	free, failed := size, 0
	for at := 0; free >= gram && failed < groups; at = (at + 1) % groups {
		group := samples[at*len(samples)/groups : (at+1)*len(samples)/groups]
		best, bestSum := []byte(nil), 0
		for _, sample := range group {
			if found, sum := bestPiece(sample, min(piece, free), counts, within); sum > bestSum {
				best, bestSum = found, sum
			}
		}
		if bestSum == 0 {
			failed++
			continue
		}
		failed = 0
		for i := range len(best) - gram + 1 {
			counts[gramHash(best[i:])] = 0
		}
		free -= len(best)
		copy(content[free:], best)
	}
	return content[free:]
}

// countGrams counts the samples that contain each gram. Grams of only one sample count 0.
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

// bestPiece returns the part of a sample, of at most piece bytes, with the highest sum of
// the counts of its distinct grams. within is scratch space, all zero before and after.
func bestPiece(sample []byte, piece int, counts []uint32, within []uint16) (best []byte, bestSum int) {
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
		if sum > bestSum {
			best, bestSum = sample[begin:at+gram], sum
		}
	}
	for ; begin+gram <= len(sample); begin++ {
		within[gramHash(sample[begin:])] = 0
	}
	return best, bestSum
}
