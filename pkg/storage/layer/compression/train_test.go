// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestDictionariesHaveSharedText trains with objects of two namespaces, each of which repeats a
// text of its own.
func TestDictionariesHaveSharedText(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	text := func(length int) string {
		letters := make([]byte, length)
		for i := range letters {
			letters[i] = byte('a' + random.IntN(26))
		}
		return string(letters)
	}
	common := text(minDictionary)
	for name, test := range map[string]struct {
		namespaces uint32
		want       bool
	}{
		"one namespace":    {1, false},
		"two namespaces":   {2, true},
		"three namespaces": {3, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var samples []sample
			secrets := map[uint32]string{}
			for i := range uint32(30) {
				owner := i%test.namespaces + 1
				if secrets[owner] == "" {
					secrets[owner] = fmt.Sprintf("%024d", owner*1_111_111)
				}
				samples = append(samples, sample{owner, []byte(common[:200] + secrets[owner] + common[200:] + fmt.Sprint(i))})
			}
			trained, err := train(samples, minDictionary, generic(genericID1))
			expect.NoError(t, err)
			if (trained != nil) != test.want {
				t.Fatalf("trained a dictionary: %t, want %t", trained != nil, test.want)
			}
			if trained == nil {
				return
			}
			if !bytes.Contains(trained.content, []byte(common[300:400])) {
				t.Error("the dictionary lacks what all namespaces have")
			}
			for _, secret := range secrets {
				for at := range len(secret) - gram {
					// The first zeros are in all of them.
					if part := secret[at : at+gram]; strings.Trim(part, "0") != "" && bytes.Contains(trained.content, []byte(part)) {
						t.Errorf("the dictionary has %q of %q", part, secret)
					}
				}
			}
		})
	}
}
