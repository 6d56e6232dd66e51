// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

const (
	// firstWrites and firstObjects are the minimum for the first attempt.
	firstWrites, firstObjects = 64, 64

	// laterWrites is the minimum number of writes between two attempts.
	laterWrites = 1000

	// maxDictionaries is per resource: none is ever deleted.
	maxDictionaries = 8

	// Limits of a sample: objects, bytes of each, and bytes in total.
	sampledObjects, sampledBytes, sampledTotal = 512, 32 << 10, 1 << 20

	// maxKeys bounds the keys that a sample is chosen from.
	maxKeys = 200_000
)

// encryptedPrefix begins values that upstream encrypted.
const encryptedPrefix = "k8s:enc:"

var secrets = schema.GroupResource{Resource: "secrets"}

// training schedules attempts to train a dictionary.
type training struct {
	// next is the number of writes of the next attempt.
	next int64
	// failures counts consecutive attempts without a better dictionary.
	failures int
}

func (t *training) due(writes int64) bool { return writes >= max(firstWrites, t.next) }

// tried schedules the next attempt after about as many writes as there are objects, doubled
// per failure. With too few objects, it is due once there may be enough.
func (t *training) tried(writes, objects int64, improved bool) {
	const maxDoublings = 6
	if improved {
		t.failures = 0
	} else {
		t.failures = min(t.failures+1, maxDoublings)
	}
	t.next = writes + max(laterWrites, objects)<<t.failures
	if objects < firstObjects {
		t.next = writes + firstObjects - objects
	}
}

// Train trains dictionaries for all resources that are due.
func (m *Manager) Train(ctx context.Context) {
	m.forEachStore(func(resources []*resource) {
		for _, r := range resources {
			if err := r.trainIfDue(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).V(1).Info("Failed to train a dictionary", "store", r.store, "resource", r.name, "err", err)
			}
		}
	})
}

func (r *resource) trainIfDue(ctx context.Context) error {
	writes := r.writes.Load()
	if !r.training.due(writes) || !r.enabled() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, followInterval)
	defer cancel()
	// An attempt that failed says nothing about the objects: the next interval repeats it.
	secret, err := r.isSecret(ctx)
	if err != nil {
		return err
	}
	if secret {
		r.training.tried(writes, 0, false)
		return nil
	}
	objects, improved, err := r.train(ctx)
	if err != nil {
		return err
	}
	r.training.tried(writes, objects, improved)
	return nil
}

// isSecret reports whether the objects are Secrets or encrypted. They get no dictionary,
// which would keep pieces of deleted objects.
func (r *resource) isSecret(ctx context.Context) (bool, error) {
	if r.name == secrets {
		return true, nil
	}
	probe := []byte("{}")
	written, err := r.encryption().TransformToStorage(ctx, probe, value.DefaultContext(keys.Objects(r.prefix, r.name)))
	if err != nil {
		return false, fmt.Errorf("check whether %s are encrypted: %w", r.name, err)
	}
	return !bytes.Equal(written, probe), nil
}

// train adds a dictionary if it is better than the current one. It returns the number of
// objects.
func (r *resource) train(ctx context.Context) (objects int64, improved bool, err error) {
	inUse, err := r.dictionaries.current(ctx)
	if err != nil {
		return 0, false, err
	}
	known := r.dictionaries.known()
	if len(known) >= maxDictionaries {
		return 0, false, nil
	}
	folder := keys.Objects(r.prefix, r.name)
	count, err := r.kv.Get(ctx, folder, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, false, fmt.Errorf("count the objects below %s: %w", folder, err)
	}
	if count.Count < firstObjects {
		return count.Count, false, nil
	}
	samples, err := r.sample(ctx, folder)
	if err != nil || len(samples) < firstObjects {
		return count.Count, false, err
	}
	total := int64(0)
	for _, sample := range samples {
		total += int64(len(sample.data))
	}
	better, err := train(samples, total/int64(len(samples))*count.Count, inUse)
	if err != nil || better == nil {
		return count.Count, false, err
	}
	if err := r.dictionaries.add(ctx, better, known); err != nil {
		if errors.Is(err, errExists) {
			return count.Count, true, nil
		}
		return count.Count, false, err
	}
	klog.FromContext(ctx).V(1).Info("Trained a dictionary", "resource", r.name, "store", r.store, "dictionary", better.id, "bytes", len(better.content))
	return count.Count, true, nil
}

// sample reads random objects. It omits those that are encrypted or too small to be
// compressed.
func (r *resource) sample(ctx context.Context, folder string) ([]sample, error) {
	chosen, err := r.choose(ctx, folder)
	if err != nil {
		return nil, err
	}
	var samples []sample
	owners := map[string]uint32{}
	total := 0
	for _, key := range chosen {
		got, err := r.kv.Get(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
		if len(got.Kvs) == 0 || bytes.HasPrefix(got.Kvs[0].Value, []byte(encryptedPrefix)) {
			continue
		}
		data, _, err := r.TransformFromStorage(ctx, got.Kvs[0].Value, value.DefaultContext(key))
		if err != nil {
			continue // reads report it
		}
		if len(data) < minSize {
			continue
		}
		if len(data) > sampledBytes {
			data = append([]byte(nil), data[:sampledBytes]...)
		}
		owner, _, _ := strings.Cut(strings.TrimPrefix(key, folder), "/")
		if owners[owner] == 0 {
			owners[owner] = uint32(len(owners)) + 1
		}
		samples = append(samples, sample{owners[owner], data})
		if total += len(data); total >= sampledTotal {
			break
		}
	}
	return samples, nil
}

// choose returns random keys.
func (r *resource) choose(ctx context.Context, folder string) ([]string, error) {
	var chosen []string
	seen := 0
	for page, err := range etcdkv.Pages(ctx, r.kv, folder, clientv3.GetPrefixRangeEnd(folder), clientv3.WithKeysOnly()) {
		if err != nil {
			return nil, fmt.Errorf("list the keys below %s: %w", folder, err)
		}
		for _, kv := range page.Kvs {
			seen++
			if len(chosen) < sampledObjects {
				chosen = append(chosen, string(kv.Key))
			} else if at := rand.IntN(seen); at < sampledObjects {
				chosen[at] = string(kv.Key)
			}
		}
		if seen >= maxKeys {
			break
		}
	}
	rand.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	return chosen, nil
}
