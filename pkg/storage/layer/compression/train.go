// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"encoding/binary"
	"fmt"
	"math"
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

// sample is an object that a dictionary is trained with.
type sample struct {
	// owner is the number of the namespace, or of an object without one, from 1 on.
	owner uint32
	data  []byte
}

// train returns the best dictionary for a resource of total bytes, or nil if none is
// better than the one in use by minSaving. The dictionary has only text that occurs in objects of
// several owners: otherwise a user could guess the text of another from the compressed size of an
// own object, which limits report.
//
// The raw dictionaries of klauspost's dict.BuildRawDict store 7 to 100 % more of the
// benchmark's objects than these, and it panics on equal samples.
func train(samples []sample, total int64, inUse *Dictionary) (*Dictionary, error) {
	var training, evaluation []sample
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
	var best *Dictionary
	least := int(float64(now) * (1 - minSaving))
	for _, piece := range []int{shortPiece, mediumPiece, longPiece} {
		content := shared(cover(training, size, piece), training)
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
func cost(d *Dictionary, samples []sample) (int, error) {
	// An encoder of its own leaves the pooled ones to requests.
	encoder, err := newEncoder(d)
	if err != nil {
		return 0, fmt.Errorf("try dictionary %d: %w", d.id, err)
	}
	sum := 0
	var value []byte
	for _, sample := range samples {
		value = encoder.EncodeAll(sample.data, value[:0])
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

// cover builds a text of at most size bytes from pieces of samples that contain the most
// frequent text. The best piece is at the end, where references are cheapest.
//
// It iterates over groups of samples, and takes from each the piece with the highest count
// of grams that no previous piece contains, until there is none.
func cover(samples []sample, size, piece int) []byte {
	counts := countGrams(samples)
	groups := max(1, min(len(samples), size/piece))
	within := make([]uint16, 1<<gramBits)
	content := make([]byte, size)
	free, failed := size, 0
	for at := 0; free >= gram && failed < groups; at = (at + 1) % groups {
		group := samples[at*len(samples)/groups : (at+1)*len(samples)/groups]
		best, bestSum := []byte(nil), 0
		for _, sample := range group {
			if found, sum := bestPiece(sample.data, min(piece, free), counts, within); sum > bestSum {
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

// countGrams counts the samples that contain each gram. Grams of only one owner count 0.
func countGrams(samples []sample) []uint32 {
	counts, last, owners := make([]uint32, 1<<gramBits), make([]uint32, 1<<gramBits), make([]uint32, 1<<gramBits)
	for i, sample := range samples {
		number := uint32(i) + 1
		for at := 0; at+gram <= len(sample.data); at++ {
			if hash := gramHash(sample.data[at:]); last[hash] != number {
				last[hash] = number
				counts[hash]++
				owners[hash] = owned(owners[hash], sample.owner)
			}
		}
	}
	for hash := range counts {
		if owners[hash] != several {
			counts[hash] = 0
		}
	}
	return counts
}

// several is the number of several owners.
const several = math.MaxUint32

// owned returns the owner of a gram after it was found in an object of another owner: owner is the
// owner so far, 0 if there is none.
func owned(owner, another uint32) uint32 {
	if owner == 0 || owner == another {
		return another
	}
	return several
}

// shared returns the parts of a text that several owners have. It compares grams, not only their
// hashes.
func shared(text []byte, samples []sample) []byte {
	owners, mayBeIn := make(map[uint64]uint32, len(text)), make([]bool, 1<<gramBits)
	for at := 0; at+gram <= len(text); at++ {
		owners[binary.LittleEndian.Uint64(text[at:])] = 0
		mayBeIn[gramHash(text[at:])] = true
	}
	for _, sample := range samples {
		for at := 0; at+gram <= len(sample.data); at++ {
			if !mayBeIn[gramHash(sample.data[at:])] {
				continue
			}
			found := binary.LittleEndian.Uint64(sample.data[at:])
			if owner, wanted := owners[found]; wanted && owner != several {
				owners[found] = owned(owner, sample.owner)
			}
		}
	}
	kept, end := make([]byte, 0, len(text)), 0
	for at := 0; at+gram <= len(text); at++ {
		if owners[binary.LittleEndian.Uint64(text[at:])] == several {
			kept = append(kept, text[max(at, end):at+gram]...)
			end = at + gram
		}
	}
	return kept
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
