// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/compression"
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
	for i := range 80 {
		widgets.create(t, "v1", fmt.Sprintf("w-%d", i), widgetContent(i))
	}
	dictionaries := "/annex/_annex/dictionaries/" + widgets.group + "/widgets/"
	poll.UntilDone(t, "there is a dictionary", func() (bool, string) {
		found, err := widgets.annex.etcd(t).Get(t.Context(), dictionaries, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		return err == nil && len(found.Kvs) == 1, fmt.Sprintf("%v, %v", found, err)
	})
	before := widgets.raw(t, "w-7")
	var after []byte
	poll.UntilDone(t, "the dictionary is used", func() (bool, string) {
		if _, err := widgets.patch(t, "v1", "w-7", "{}"); err != nil {
			return false, err.Error()
		}
		after = widgets.raw(t, "w-7")
		_, own := compression.DictionaryID(after)
		return own, fmt.Sprintf("w-7 is %.40q", after)
	})
	if len(after)*5 > len(before)*4 {
		t.Errorf("with a dictionary of its own an object takes %d bytes, without %d", len(after), len(before))
	}
	if got := len(widgets.list(t)); got != 80 {
		t.Errorf("there are %d objects", got)
	}
	hosted := widgets.waitForExactUsage(t)
	if hosted.Status.StoredBytes*3 > hosted.Status.Bytes {
		t.Errorf("%d bytes take %d", hosted.Status.Bytes, hosted.Status.StoredBytes)
	}
}
