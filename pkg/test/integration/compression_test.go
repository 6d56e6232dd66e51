// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// raw reads the value of a Widget from etcd.
func (r *resource) raw(t *testing.T, name string) []byte {
	t.Helper()
	return rawValue(t, r.annex.etcd(t), r.key(name))
}

// rawValue reads a value from etcd, compressed or not.
func rawValue(t *testing.T, annexEtcd *clientv3.Client, key string) []byte {
	t.Helper()
	found, err := annexEtcd.Get(t.Context(), key)
	if err != nil || len(found.Kvs) != 1 {
		t.Fatalf("read %s from etcd: %v, %v", key, found, err)
	}
	return found.Kvs[0].Value
}

var lastProbe atomic.Int64

// setCompression sets the compression of the resource, and waits until it is in force.
func (r *resource) setCompression(t *testing.T, wanted hostingv1alpha1.Compression) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"compression":%q}}`, wanted)
	expect.Patch(t, r.annex.HostedResources(), r.name, string(patch))
	poll.UntilDone(t, fmt.Sprintf("compression %q is in force", wanted), func() (bool, string) {
		name := fmt.Sprintf("probe-%d", lastProbe.Add(1))
		r.create(t, "v1", name, widgetContent(1))
		compressed := compression.IsCompressed(r.raw(t, name))
		return compressed == (wanted != hostingv1alpha1.CompressionNone), fmt.Sprintf("compressed: %t", compressed)
	})
}

// widgetContent returns about two kilobytes of content.
func widgetContent(i int) string {
	var content strings.Builder
	content.WriteString("spec:\n")
	for j := range 20 {
		fmt.Fprintf(&content, "  propertyNumber%d: {measuredDiameter: %d, suspensionMaterial: steel, lubricated: true}\n", j, i*j)
	}
	return content.String()
}

// TestCompressionSetting changes the compression at run time. Every update, even without
// changes, applies it to the stored value.
func TestCompressionSetting(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, anySchema))
	created := widgets.create(t, "v1", "w", widgetContent(1))
	if !compression.IsCompressed(widgets.raw(t, "w")) {
		t.Fatal("it is not compressed by default")
	}
	for _, wanted := range []hostingv1alpha1.Compression{hostingv1alpha1.CompressionNone, hostingv1alpha1.CompressionZstd, hostingv1alpha1.CompressionNone, ""} {
		widgets.setCompression(t, wanted)
		before := widgets.get(t, "v1", "w")
		if before.GetUID() != created.GetUID() || field(before, "spec", "propertyNumber3", "measuredDiameter") == nil {
			t.Fatalf("%q: it reads %v", wanted, before)
		}
		rewritten := widgets.mustPatch(t, "v1", "w", "{}")
		if compressed := compression.IsCompressed(widgets.raw(t, "w")); compressed != (wanted != hostingv1alpha1.CompressionNone) {
			t.Errorf("%q: after an update without changes it is compressed: %t", wanted, compressed)
		}
		if rewritten.GetResourceVersion() == before.GetResourceVersion() {
			t.Errorf("%q: it was not written", wanted)
		}
		again := widgets.mustPatch(t, "v1", "w", "{}")
		if again.GetResourceVersion() != rewritten.GetResourceVersion() {
			t.Errorf("%q: another update without changes was a write", wanted)
		}
	}
	widgets.waitForExactUsage(t)
}

// TestCompressionTrainsDictionary creates enough objects for a dictionary.
func TestCompressionTrainsDictionary(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, anySchema))
	widgets.createTrainingObjects(t)
	before := widgets.raw(t, "w-3") // written before there was a dictionary
	widgets.trainDictionary(t)
	if got := len(widgets.dictionaries(t)); got != 1 {
		t.Errorf("there are %d dictionaries", got)
	}
	after := widgets.raw(t, "w-3")
	if _, own := compression.DictionaryID(after); !own {
		t.Errorf("w-3 is %.40q", after)
	}
	if len(after)*5 > len(before)*4 {
		t.Errorf("with a dictionary of its own an object takes %d bytes, without %d", len(after), len(before))
	}
	if got := len(widgets.list(t)); got != trainingObjects+elsewhereObjects {
		t.Errorf("there are %d objects", got)
	}
	hosted := widgets.waitForExactUsage(t)
	if hosted.Status.StoredBytes*3 > hosted.Status.Bytes {
		t.Errorf("%d bytes take %d", hosted.Status.Bytes, hosted.Status.StoredBytes)
	}
}

const (
	// trainingObjects is the number of objects that suffice to train a dictionary, and
	// elsewhereObjects the number of objects in another namespace.
	trainingObjects, elsewhereObjects = 80, 10
	// checkedObjects is the number of objects that tests check and update.
	checkedObjects = 5
)

// compressedMagic is the prefix of every compressed value. It must never change, so it is
// repeated here.
const compressedMagic = "\x00annex:zstd:1\x00"

// createTrainingObjects creates enough objects to train a dictionary, and some in another
// namespace: a dictionary has only text of several.
func (r *resource) createTrainingObjects(t *testing.T) {
	t.Helper()
	elsewhere := *r
	elsewhere.namespace = r.annex.newNamespace(t)
	for i := range elsewhereObjects {
		elsewhere.create(t, "v1", fmt.Sprintf("w-%d", i), widgetContent(i+100))
	}
	for i := range trainingObjects {
		r.create(t, "v1", fmt.Sprintf("w-%d", i), widgetContent(i))
	}
}

// touch updates the first objects without changing them.
func (r *resource) touch(t *testing.T, objects int) {
	t.Helper()
	for i := range objects {
		r.mustPatch(t, "v1", fmt.Sprintf("w-%d", i), "{}")
	}
}

// trainDictionary waits for a dictionary, and rewrites objects so that they use it. It
// returns the key of the dictionary.
func (r *resource) trainDictionary(t *testing.T) (key string) {
	t.Helper()
	poll.Until(t, "there is a dictionary", func() string {
		for key = range r.dictionaries(t) {
			return ""
		}
		return "none"
	})
	// It is in etcd shortly before it is used. The first object was written without it.
	before := r.get(t, "v1", "w-0").GetResourceVersion()
	poll.UntilDone(t, "the dictionary is used", func() (bool, string) {
		after, err := r.patch(t, "v1", "w-0", "{}")
		return err == nil && after.GetResourceVersion() != before, fmt.Sprintf("w-0 is not written again (%v)", err)
	})
	r.touch(t, checkedObjects)
	return key
}

// mustRead fails unless the objects can be read, one by one and together.
func (r *resource) mustRead(t *testing.T, when string) {
	t.Helper()
	if got := len(r.list(t)); got < trainingObjects {
		t.Errorf("%s: %d objects are listed", when, got)
	}
	for i := range checkedObjects {
		object := r.get(t, "v1", fmt.Sprintf("w-%d", i))
		if got := field(object, "spec", "propertyNumber7", "measuredDiameter"); got != int64(7*i) {
			t.Errorf("%s: w-%d reads %v", when, i, got)
		}
	}
}

// valueCounts counts values by their compression: none, the built-in dictionary, a
// dictionary of the resource.
type valueCounts struct{ plain, generic, own int }

// counts counts the checked objects in etcd.
func (r *resource) counts(t *testing.T) (counts valueCounts) {
	t.Helper()
	for i := range checkedObjects {
		value := r.raw(t, fmt.Sprintf("w-%d", i))
		_, own := compression.DictionaryID(value)
		switch {
		case own:
			counts.own++
		case bytes.HasPrefix(value, []byte(compressedMagic)):
			counts.generic++
		case value[0] == '{':
			counts.plain++
		default:
			t.Errorf("w-%d is %.40q", i, value)
		}
	}
	return counts
}

// TestCompressionOfPlainObjects enables and disables compression, with a restart before each
// step. Only updates rewrite values.
func TestCompressionOfPlainObjects(t *testing.T) {
	t.Parallel()
	widgets := startAnnex(t, "--storage-compression=None").installCRD(t, newCRD(t, anySchema))
	widgets.createTrainingObjects(t)
	if got := widgets.counts(t); got != (valueCounts{plain: checkedObjects}) {
		t.Fatalf("without compression: %+v", got)
	}
	small := widgets.create(t, "v1", "small", "{}")

	widgets.annex = widgets.annex.restart(t)
	widgets.mustRead(t, "before anything is rewritten")
	if got := widgets.counts(t); got != (valueCounts{plain: checkedObjects}) {
		t.Errorf("reading rewrote: %+v", got)
	}
	widgets.touch(t, trainingObjects)
	if got := widgets.counts(t); got.plain > 0 {
		t.Errorf("after updates without changes: %+v", got)
	}
	again := widgets.mustPatch(t, "v1", "small", "{}")
	if value := widgets.raw(t, "small"); value[0] != '{' || again.GetResourceVersion() != small.GetResourceVersion() {
		t.Errorf("a small object was written again, as %.40q", value)
	}
	widgets.trainDictionary(t)
	if got := widgets.counts(t); got != (valueCounts{own: checkedObjects}) {
		t.Errorf("with a dictionary: %+v", got)
	}
	widgets.mustRead(t, "with a dictionary")
	widgets.waitForExactUsage(t)

	widgets.annex = widgets.annex.restart(t)
	widgets.mustRead(t, "after a restart")
	fresh := widgets.create(t, "v1", "fresh", widgetContent(1))
	if _, own := compression.DictionaryID(widgets.raw(t, fresh.GetName())); !own {
		t.Error("the dictionary is not used after a restart")
	}

	widgets.annex = widgets.annex.restart(t, "--storage-compression=None")
	widgets.mustRead(t, "disabled")
	widgets.touch(t, checkedObjects)
	if got := widgets.counts(t); got != (valueCounts{plain: checkedObjects}) {
		t.Errorf("disabled, after updates: %+v", got)
	}
	if len(widgets.dictionaries(t)) != 1 {
		t.Error("the dictionary was deleted, and fresh needs it")
	}
	if got := widgets.get(t, "v1", "fresh"); got.GetUID() != fresh.GetUID() {
		t.Errorf("a compressed object reads %v", got)
	}
}

// TestDictionariesOutliveTheirCRD deletes and recreates a CRD. The dictionary is still used,
// from the first object on.
func TestDictionariesOutliveTheirCRD(t *testing.T) {
	t.Parallel()
	definition := newCRD(t, anySchema)
	widgets := sharedAnnex(t).installCRD(t, definition.DeepCopy())
	widgets.createTrainingObjects(t)
	key := widgets.trainDictionary(t)
	widgets.deleteCRD(t)
	widgets.waitForCRDDeleted(t)
	widgets.waitForHostedResourceDeleted(t)
	if _, found := widgets.dictionaries(t)[key]; !found {
		t.Fatal("the dictionary was deleted with the CRD")
	}
	widgets.annex.createCRD(t, definition)
	widgets.create(t, "v1", "w", widgetContent(1))
	id, own := compression.DictionaryID(widgets.raw(t, "w"))
	if !own || !strings.HasSuffix(key, "/"+strconv.FormatUint(uint64(id), 10)) {
		t.Errorf("the first object is compressed with dictionary %d, want that at %s", id, key)
	}
}

// TestCompressionWithEncryption checks that etcd has no plain text of an object, neither in
// its value nor in the dictionary, and no compressed value that is not encrypted.
func TestCompressionWithEncryption(t *testing.T) {
	t.Parallel()
	definition := newCRD(t, anySchema)
	flag := "--encryption-provider-config=" + writeFile(t, "encryption.yaml",
		encryptionConfig("widgets."+definition.Spec.Group, provider("secretbox", "first"), "{identity: {}}"))
	widgets := startAnnex(t).installCRD(t, definition)
	widgets.createTrainingObjects(t)
	key := widgets.trainDictionary(t) // encrypted objects are not used for training
	widgets.annex = widgets.annex.restart(t, flag)
	widgets.touch(t, checkedObjects)
	poll.UntilDone(t, "the dictionary is encrypted", func() (bool, string) {
		value := widgets.dictionaries(t)[key]
		return bytes.HasPrefix(value, []byte("k8s:enc:")), fmt.Sprintf("it is %.40q", value)
	})
	values := map[string][]byte{key: widgets.dictionaries(t)[key], "w-3": widgets.raw(t, "w-3")}
	for what, value := range values {
		if !bytes.HasPrefix(value, []byte("k8s:enc:secretbox:v1:first:")) {
			t.Errorf("%s is %.40q", what, value)
		}
		for _, secret := range []string{"suspensionMaterial", "steel", "propertyNumber", compressedMagic} {
			if bytes.Contains(value, []byte(secret)) {
				t.Errorf("%s contains %q", what, secret)
			}
		}
	}
	plain, err := widgets.get(t, "v1", "w-3").MarshalJSON()
	expect.NoError(t, err)
	if got := len(values["w-3"]); got*3 > len(plain) {
		t.Errorf("an object of %d bytes takes %d", len(plain), got)
	}
	widgets.waitForExactUsage(t)
	widgets.annex = widgets.annex.restart(t, flag)
	widgets.mustRead(t, "after a restart")
}

// TestCompressionOnReplicas reads on one replica objects that another compressed with a
// dictionary it has just trained.
func TestCompressionOnReplicas(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Start(t, nil).Endpoint()
	annexEtcd := newEtcdClient(t, clientv3.Config{Endpoints: []string{endpoint}})
	first := startReplica(t, endpoint).installCRD(t, newCRD(t, anySchema))
	second := first.on(startReplica(t, endpoint).annex)
	first.create(t, "v1", "before", widgetContent(1))
	events := second.watch(t, "v1", metav1.ListOptions{FieldSelector: "metadata.name=after"})
	second.create(t, "v1", "too", widgetContent(2))
	first.createTrainingObjects(t)
	var after []byte
	poll.UntilDone(t, "the first replica has a dictionary", func() (bool, string) {
		if _, err := first.patch(t, "v1", "before", "{}"); err != nil {
			return false, err.Error()
		}
		if after = rawValue(t, annexEtcd, first.key("before")); !bytes.HasPrefix(after, []byte(compressedMagic)) {
			return false, fmt.Sprintf("etcd has %.40q", after)
		}
		_, own := compression.DictionaryID(after)
		return own, "none"
	})
	created := first.create(t, "v1", "after", widgetContent(3))
	if event := nextEvent(t, events); !strings.Contains(describe(event), "after") {
		t.Errorf("the watch of the second replica received %s", describe(event))
	}
	if got := second.get(t, "v1", "after"); got.GetUID() != created.GetUID() {
		t.Errorf("the second reads %v", got)
	}
	if got := len(second.list(t)); got != trainingObjects+elsewhereObjects+3 {
		t.Errorf("the second lists %d objects", got)
	}
}

// TestLostDictionary deletes and damages a dictionary. Lists fail and name the unreadable
// objects, others can be read, and with the dictionary restored everything can be read.
func TestLostDictionary(t *testing.T) {
	t.Parallel()
	widgets := startAnnex(t).installCRD(t, newCRD(t, anySchema))
	widgets.createTrainingObjects(t)
	key := widgets.trainDictionary(t)
	id := key[strings.LastIndexByte(key, '/')+1:]
	content := widgets.dictionaries(t)[key]
	const lost, neighbour = "w-0", "w-10"
	for name, change := range map[string]func(*clientv3.Client) error{
		"not in the Store": func(annexEtcd *clientv3.Client) error {
			_, err := annexEtcd.Delete(t.Context(), key)
			return err
		},
		"damaged": func(annexEtcd *clientv3.Client) error {
			_, err := annexEtcd.Put(t.Context(), key, "damaged")
			return err
		},
	} {
		expect.NoError(t, change(widgets.annex.etcd(t)))
		widgets.annex = widgets.annex.restart(t)
		_, err := widgets.in("v1").Get(t.Context(), lost, metav1.GetOptions{})
		expect.Error(t, err, "dictionary "+id, key, name)
		if apierrors.IsNotFound(err) {
			t.Errorf("%s: it is not found: %v", name, err)
		}
		widgets.get(t, "v1", neighbour)
		list := widgets.annex.get(t, widgets.path("v1"))
		list.ExpectText(t, http.StatusInternalServerError, widgets.namespace+"/"+lost, "%s: the list does not fail because of %s", name, lost)
	}
	etcdPut(t, widgets.annex.etcd(t), key, string(content))
	poll.Until(t, "all objects are listed with the dictionary", func() string {
		list, err := widgets.annex.Dynamic.Resource(widgets.gvr("v1")).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, object := range list.Items {
			if object.GetName() == lost {
				return ""
			}
		}
		return fmt.Sprintf("%d are", len(list.Items))
	})
}
