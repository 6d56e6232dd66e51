// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"path"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// dictionary is one of pods, as it lies in a Store that was encrypted after it was trained.
// All subjects encrypt theirs in the same way, so that it fits into the Store of each.
type dictionary struct {
	name, value string
	id          uint32
	sample      []byte // is compressed with it
}

var trainOnce struct {
	sync.Mutex
	dictionary *dictionary
}

// trainedDictionary is trained once, by what annex itself trains with.
func trainedDictionary(t *testing.T) *dictionary {
	t.Helper()
	trainOnce.Lock()
	defer trainOnce.Unlock()
	if trainOnce.dictionary == nil {
		trainOnce.dictionary = train(t)
	}
	return trainOnce.dictionary
}

func train(t *testing.T) *dictionary {
	t.Helper()
	etcd := etcdtest.Start(t, nil).Client()
	manager := compression.NewManager()
	// Of what is encrypted none is trained.
	transformer, release := manager.Transformer(compression.Resource{GroupResource: pods, KV: etcd, Enabled: func() bool { return true }})
	defer release()
	var sample []byte
	for i := range 200 {
		key := path.Join(resourcePrefix, fmt.Sprintf("training-%d", i%2), fmt.Sprint(i))
		sample = wordyPod(t, i)
		data, err := transformer.TransformToStorage(t.Context(), sample, value.DefaultContext(key))
		expect.NoError(t, err)
		_, err = etcd.Put(t.Context(), key, string(data))
		expect.NoError(t, err)
	}
	manager.Train(t.Context())
	found, err := etcd.Get(t.Context(), keys.Dictionaries("", pods), clientv3.WithPrefix())
	expect.NoError(t, err)
	if len(found.Kvs) != 1 {
		t.Fatalf("%d dictionaries were trained, want one", len(found.Kvs))
	}
	key := string(found.Kvs[0].Key)
	encrypted, err := stacked{outer: newEncryption(t), inner: newTransformerSwitch()}.TransformToStorage(t.Context(), found.Kvs[0].Value, value.DefaultContext(key))
	expect.NoError(t, err)
	d := &dictionary{name: path.Base(key), value: string(encrypted), sample: sample}
	_, err = fmt.Sscan(d.name, &d.id)
	expect.NoError(t, err, "the dictionary's name is %q", d.name)
	return d
}

// wordyPod has something to learn from in it.
func wordyPod(t *testing.T, i int) []byte {
	t.Helper()
	pod := &example.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i), Namespace: "training", Labels: map[string]string{}},
		Spec:       example.PodSpec{NodeName: fmt.Sprintf("node-%d", i%7)},
	}
	for j := range 20 {
		pod.Labels[fmt.Sprintf("suspension.%s/part%d", strings.Repeat("ab", j%5), j)] = fmt.Sprintf("steel-%d", i*j)
	}
	data, err := runtime.Encode(codec, pod)
	expect.NoError(t, err)
	return data
}
