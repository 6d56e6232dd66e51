// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic/dynamicinformer"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd"
	"github.com/annex-dev/annex/pkg/storage/backup"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

// run runs a command of annex and returns what it prints.
func run(args ...string) (printed string, err error) {
	var out, errOut bytes.Buffer
	if code := cmd.Execute(args, &out, &errOut); code != 0 {
		return out.String(), fmt.Errorf("annex %s: exit code %d: %s", strings.Join(args, " "), code, errOut.String())
	}
	return out.String(), nil
}

func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	printed, err := run(args...)
	expect.NoError(t, err)
	return printed
}

// TestCommandsOfMainClusters runs commands that need a main cluster with a standalone annex.
func TestCommandsOfMainClusters(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	const group = "nowhere.example.com"
	for _, command := range []string{
		"diagnose", "diagnose --group=" + group, "doctor", "uninstall", "uninstall --dry-run",
		"move --dry-run " + group, "move " + group, "rollback " + group, "finalize --yes-delete=" + group + " " + group,
	} {
		printed, err := run(append(strings.Fields(command), "--kubeconfig="+a.Kubeconfig)...)
		expect.Error(t, err, "exit code 1: annex: "+a.URL+" is annex itself, and this command needs the main cluster")
		if printed != "" || strings.Count(fmt.Sprint(err), "\n") != 1 {
			t.Errorf("%s prints %q, %v", command, printed, err)
		}
	}
	_, err := a.Kube.RbacV1().ClusterRoles().Get(t.Context(), hostingv1alpha1.HostedRoleName(group), metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the role of the group: %v", err)
	}
}

// without returns objects by name, without their resource versions.
func without(objects []unstructured.Unstructured) map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, object := range objects {
		object = *object.DeepCopy()
		object.SetResourceVersion("")
		all[object.GetNamespace()+"/"+object.GetName()] = object.Object
	}
	return all
}

func (r *resource) list(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	list, err := r.annex.Dynamic.Resource(r.gvr("v1")).List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err, "list %s", r.name)
	return list.Items
}

// fill creates objects with everything that a restore could lose.
func (r *resource) fill(t *testing.T) {
	t.Helper()
	for i := range 20 {
		r.create(t, "v1", fmt.Sprintf("w-%d", i), fmt.Sprintf("spec: {i: %d, text: %s}", i, strings.Repeat("x", 1000)))
	}
	r.create(t, "v1", "kept", "{metadata: {finalizers: [example.com/keep], labels: {a: b}}, spec: {}}")
	r.delete(t, "kept")
	r.mustApply(t, "test", "spec: {applied: true}", false)
}

func highest(t *testing.T, objects []unstructured.Unstructured) int {
	t.Helper()
	version := 0
	for _, object := range objects {
		version = max(version, resourceVersion(t, object.GetResourceVersion()))
	}
	return version
}

// TestRestoreToAnotherServer restores a resource on another server, which encrypts with its
// own key. The first server refuses the backup of that.
func TestRestoreToAnotherServer(t *testing.T) {
	t.Parallel()
	config := writeFile(t, "encryption.yaml", encryptionConfig("'*.*'", provider("aesgcm", "new"), "{identity: {}}"))
	home, elsewhere := sharedAnnex(t), startAnnex(t, "--encryption-provider-config="+config)
	crd := newCRD(t, anySchema)
	crd.Spec.Versions = append(crd.Spec.Versions, newVersion(t, "v2", anySchema))
	widgets := home.installCRD(t, crd)
	widgets.fill(t)
	widgets.updateCRD(t, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Versions[0].Storage, crd.Spec.Versions[1].Storage = false, true
	})
	before := widgets.list(t)
	file := filepath.Join(t.TempDir(), "widgets.backup")
	printed := mustRun(t, "backup", "--kubeconfig="+home.Kubeconfig, "--resource="+widgets.name, file)
	if want := fmt.Sprintf("%s: %s of Store default, %d objects (", file, widgets.name, len(before)); !strings.HasPrefix(printed, want) {
		t.Errorf("printed %q, want %q…", printed, want)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	_, err := run("backup", "--kubeconfig="+home.Kubeconfig, "--resource="+widgets.name, file)
	expect.Error(t, err, "it exists already")
	_, err = run("restore", "--kubeconfig="+home.Kubeconfig, file)
	expect.Error(t, err, "customresourcedefinition "+widgets.name+" exists")

	there := widgets.on(elsewhere)
	restore := []string{"restore", "--kubeconfig=" + elsewhere.Kubeconfig, file}
	mustRun(t, append(restore, "--dry-run")...)
	if _, err := elsewhere.HostedResources().Get(t.Context(), widgets.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a dry run: %v", err)
	}
	if want, printed := fmt.Sprintf("%s: %d objects restored to Store default\n", widgets.name, len(before)), mustRun(t, restore...); printed != want {
		t.Errorf("printed %q, want %q", printed, want)
	}
	after := there.list(t)
	if diff := cmp.Diff(without(before), without(after)); diff != "" {
		t.Errorf("objects (-home +elsewhere):\n%s", diff)
	}
	for _, object := range after {
		if got := resourceVersion(t, object.GetResourceVersion()); got <= highest(t, before) {
			t.Errorf("%s has resource version %d, at home there was %d", object.GetName(), got, highest(t, before))
		}
	}
	restored := expect.Get(t, elsewhere.CRDs(), widgets.name)
	if got := slices.Sorted(slices.Values(restored.Status.StoredVersions)); !slices.Equal(got, []string{"v1", "v2"}) {
		t.Errorf("stored versions %q, objects are stored in both", got)
	}
	there.waitForHostedResource(t, "has the label automanaged", func(hosted *hostingv1alpha1.HostedResource) bool {
		return hosted.Labels[hostingv1alpha1.AutomanagedLabel] == "true" && hosted.Spec.StoreName == "default"
	})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: widgets.namespace}}
	expect.Create(t, elsewhere.Kube.CoreV1().Namespaces(), namespace)
	there.create(t, "v1", "written-later", "spec: {}")

	// The first server does not have the key.
	back := filepath.Join(t.TempDir(), "back.backup")
	mustRun(t, "backup", "--kubeconfig="+elsewhere.Kubeconfig, "--resource="+widgets.name, back)
	if content := readFile(t, back); bytes.Contains(content, []byte("xxxxxxxxxx")) || !bytes.Contains(content, []byte("k8s:enc:aesgcm:v1:new:")) {
		t.Error("encrypted values are not encrypted in the backup")
	}
	widgets.mustPatch(t, "v1", "kept", `{"metadata": {"finalizers": null}}`)
	widgets.deleteCRD(t)
	widgets.waitForCRDDeleted(t)
	widgets.waitForHostedResourceDeleted(t)
	_, err = run("restore", "--kubeconfig="+home.Kubeconfig, back)
	expect.Error(t, err, "no change was made", "cannot be read")
	if found, err := home.etcd(t).Get(t.Context(), strings.TrimSuffix(widgets.key("x"), "x"), clientv3.WithPrefix()); err != nil || len(found.Kvs) > 0 {
		t.Errorf("a refused restore wrote: %v, %v", found.Kvs, err)
	}
	if _, err := home.HostedResources().Get(t.Context(), widgets.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a refused restore left a HostedResource: %v", err)
	}
}

// TestInformerDuringRestore watches a resource that is deleted and restored with an
// informer. It ends with the restored objects, and resource versions never decrease.
func TestInformerDuringRestore(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	for i := range 5 {
		widgets.create(t, "v1", fmt.Sprintf("w-%d", i), "spec: {}")
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(a.Dynamic, 0)
	informer := factory.ForResource(widgets.gvr("v1")).Informer()
	var mu sync.Mutex
	var highestSeen int
	see := func(obj any) {
		object, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return
		}
		version := resourceVersion(t, object.GetResourceVersion())
		mu.Lock()
		defer mu.Unlock()
		if version < highestSeen && object.GetName() == "w-0" {
			t.Errorf("%s has resource version %d after %d", object.GetName(), version, highestSeen)
		}
		if object.GetName() == "w-0" {
			highestSeen = version
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) }}); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer did not start")
	}
	file := filepath.Join(t.TempDir(), "widgets.backup")
	mustRun(t, "backup", "--kubeconfig="+a.Kubeconfig, "--resource="+widgets.name, file)
	want := map[string]string{}
	for _, object := range widgets.list(t) {
		want[object.GetName()] = string(object.GetUID())
	}
	for i := range 50 { // clients see these versions, and the backup lacks them
		widgets.mustPatch(t, "v1", "w-0", fmt.Sprintf(`{"spec": {"i": %d}}`, i))
	}
	widgets.create(t, "v1", "lost", "spec: {}")
	widgets.deleteCRD(t)
	widgets.waitForCRDDeleted(t)
	mustRun(t, "restore", "--kubeconfig="+a.Kubeconfig, file)
	widgets.mustPatch(t, "v1", "w-1", `{"spec": {"after": true}}`)
	poll.Until(t, "the informer has the restored objects", func() string {
		got := map[string]string{}
		for _, obj := range informer.GetStore().List() {
			object := obj.(*unstructured.Unstructured)
			got[object.GetName()] = string(object.GetUID())
		}
		return cmp.Diff(want, got)
	})
	poll.UntilDone(t, "the informer receives a change", func() (bool, string) {
		obj, _, _ := informer.GetStore().GetByKey(widgets.namespace + "/w-1")
		object, ok := obj.(*unstructured.Unstructured)
		return ok && field(object, "spec", "after") == true, fmt.Sprint(obj)
	})
}

// TestRestoreDataDirectory restores a data directory of which only the keys are left.
func TestRestoreDataDirectory(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	widgets.fill(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"a": "b"}}
	secret = expect.Create(t, a.Kube.CoreV1().Secrets(widgets.namespace), secret)
	before := widgets.list(t)
	file := filepath.Join(t.TempDir(), "default.backup")
	_, err := run("backup", "--kubeconfig="+a.Kubeconfig, "--store=default", filepath.Join(t.TempDir(), "no folder", "backup"))
	expect.Error(t, err, "no such file or directory")
	if at := expect.Get(t, a.Stores(), "default").Status.LastBackupTime; at != nil {
		t.Errorf("before the first backup, the last one was at %s", at)
	}
	mustWrite(t, file, []byte(mustRun(t, "backup", "--kubeconfig="+a.Kubeconfig, "--store=default", "-")))
	if at := expect.Get(t, a.Stores(), "default").Status.LastBackupTime; at == nil {
		t.Error("the Store does not have the time of the last backup")
	}
	lost := widgets.create(t, "v1", "lost", "spec: {}")
	a.Stop(t)

	dir := filepath.Join(t.TempDir(), "data")
	_, err = run("restore", file, "--data-dir="+a.DataDir)
	expect.Error(t, err, "there is an etcd already")
	cut := filepath.Join(t.TempDir(), "cut.backup")
	mustWrite(t, cut, readFile(t, file)[:10_000])
	_, err = run("restore", cut, "--data-dir="+dir)
	expect.Error(t, err, "its end is missing")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a refused backup left %s: %v", dir, err)
	}
	if printed := mustRun(t, "restore", file, "--data-dir="+dir); !strings.HasPrefix(printed, "Store default restored to "+dir+": ") {
		t.Errorf("printed %q", printed)
	}
	expect.NoError(t, os.CopyFS(filepath.Join(dir, "pki"), os.DirFS(filepath.Join(a.DataDir, "pki"))))
	expect.NoError(t, filepath.WalkDir(filepath.Join(dir, "pki"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return os.Chmod(path, 0o600)
	}))
	back := newAnnex(t, testserver.StartIn(t, dir))
	again := widgets.on(back)
	var after []unstructured.Unstructured
	poll.UntilNoError(t, "the resource is served", func() error {
		list, err := back.Dynamic.Resource(again.gvr("v1")).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		after = list.Items
		return nil
	})
	if diff := cmp.Diff(without(before), without(after)); diff != "" {
		t.Errorf("objects (-before +after):\n%s", diff)
	}
	if got, seen := highest(t, after), resourceVersion(t, lost.GetResourceVersion()); got <= seen {
		t.Errorf("resource versions went back from %d to %d", seen, got)
	}
	found := expect.Get(t, back.Kube.CoreV1().Secrets(widgets.namespace), "s")
	if resourceVersion(t, found.ResourceVersion) <= resourceVersion(t, lost.GetResourceVersion()) || found.UID != secret.UID {
		t.Errorf("the Secret is %+v, it was %+v", found.ObjectMeta, secret.ObjectMeta)
	}
	// Clients that watched before have to list again.
	_, err = again.in("v1").List(t.Context(), metav1.ListOptions{ResourceVersion: lost.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a list of the past: %v, want that it is gone", err)
	}
	again.create(t, "v1", "new", "spec: {}")
}

// TestUnfinishedRestoreIsNotServed starts annex in the middle of a restore.
func TestUnfinishedRestoreIsNotServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testserver.StartIn(t, dir)
	a.Stop(t)
	expect.NoError(t, os.Mkdir(filepath.Join(dir, "etcd.restoring"), 0o700))
	_, err := testserver.TryStartIn(t, dir)
	expect.Error(t, err, "--data-dir", "a restore is unfinished")
}

// TestBackupRequests sends requests that the commands do not send.
func TestBackupRequests(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	widgets.waitForHostedResource(t, "is hosted", isHosted)
	// etcd has compacted earlier revisions if this annex serves other tests for long.
	revision := widgets.create(t, "v1", "there", "spec: {}").GetResourceVersion()
	const base = "/apis/hosting.annex.dev/v1alpha1/"
	header := `{"formatVersion":1,"revision":7,"resourceVersion":9223372036854775807}`
	beyond := "\x89annex\r\n\x1a\nh\x00" + string(rune(len(header))) + header
	for name, tc := range map[string]struct {
		method, path, body string
		code               int
		want               string
	}{
		"unknown Store":       {"POST", "stores/nowhere/backup", "", 404, `"nowhere\" not found`},
		"unknown resource":    {"POST", "hostedresources/no.example.com/backup", "", 404, "not found"},
		"bad revision":        {"POST", "stores/default/backup?revision=x&continue=y", "", 400, "revision"},
		"half a position":     {"POST", "stores/default/backup?revision=7", "", 400, "together"},
		"no such position":    {"POST", "hostedresources/" + widgets.name + "/backup?revision=7&continue=x&data=x", "", 400, "cannot continue"},
		"of other data":       {"POST", "stores/default/backup?revision=" + revision + "&continue=a&data=x", "", 409, "was replaced since the backup started: start again"},
		"the future":          {"POST", "stores/default/backup?revision=999999999&continue=a&data=x", "", 409, "was replaced"},
		"read by GET":         {"GET", "stores/default/backup", "", 405, ""},
		"beyond all versions": {"POST", "stores/default/restore?resource=a.example.com", beyond, 400, "which no etcd reaches"},
		"no resource":         {"POST", "stores/default/restore", "", 400, "PLURAL.GROUP"},
		"Secrets":             {"POST", "stores/default/restore?resource=default.secrets", "", 400, "PLURAL.GROUP"},
		"bad check":           {"POST", "stores/default/restore?check=no", "", 400, "check"},
		"a served resource":   {"POST", "stores/default/restore?resource=" + widgets.name, "", 409, "is served"},
		"annex's own":         {"POST", "stores/default/restore?resource=stores.hosting.annex.dev", "", 400, "belongs to annex itself"},
		"no backup":           {"POST", "stores/default/restore?resource=a.example.com", "apiVersion: v1", 400, "not a backup"},
		"nothing":             {"POST", "stores/default/restore?resource=a.example.com", "", 400, "empty"},
		"to an unknown Store": {"POST", "stores/nowhere/restore?resource=a.example.com", "", 404, "not found"},
	} {
		got := a.request(t, tc.method, base+tc.path, tc.body)
		got.ExpectText(t, tc.code, tc.want, "%s", name)
	}
	outsider := restclient.AnonymousClientConfig(a.AnnexConfig)
	outsider.BearerToken = outsiderToken
	client, err := restclient.HTTPClientFor(outsider)
	expect.NoError(t, err)
	send(t, client, "POST", a.URL+base+"stores/default/backup", "").ExpectText(t, 403, `cannot create resource \"stores/backup\"`, "an outsider")
}

// TestRestoreResumes interrupts a restore, changes objects, and repeats the restore.
func TestRestoreResumes(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	widgets.fill(t)
	before := widgets.list(t)
	dir := t.TempDir()
	file, half, less := filepath.Join(dir, "whole"), filepath.Join(dir, "half"), filepath.Join(dir, "less")
	mustRun(t, "backup", "--kubeconfig="+a.Kubeconfig, "--resource="+widgets.name, file)
	first := strings.TrimPrefix(widgets.key("w-0"), "/annex/")
	objects := 0
	copyBackup(t, file, half, func(record backup.Record) bool {
		if record.Kind == backup.KindObject {
			objects++
		}
		return objects <= 10
	})
	copyBackup(t, file, less, func(record backup.Record) bool { return record.Key != first })
	widgets.mustPatch(t, "v1", "kept", `{"metadata": {"finalizers": null}}`)
	widgets.deleteCRD(t)
	widgets.waitForCRDDeleted(t)
	widgets.waitForHostedResourceDeleted(t)

	path := "/apis/hosting.annex.dev/v1alpha1/stores/default/restore?resource=" + widgets.name
	if got := a.request(t, "POST", path, string(readFile(t, half))); got.Code != 200 || string(got.Body) != `{"objects":10,"found":0,"present":10}` {
		t.Fatalf("the first half: %s", got)
	}
	_, err := run("restore", "--kubeconfig="+a.Kubeconfig, less)
	expect.Error(t, err, "no change was made", "that are not in the backup (1)")
	stored := etcdValue(t, a.etcd(t), widgets.key("w-0"))
	etcdPut(t, a.etcd(t), widgets.key("w-0"), `{"another": "object"}`)
	_, err = run("restore", "--kubeconfig="+a.Kubeconfig, file)
	expect.Error(t, err, "no change was made", "w-0: the Store has another object in its place")
	etcdPut(t, a.etcd(t), widgets.key("w-0"), string(stored))
	mustRun(t, "restore", "--kubeconfig="+a.Kubeconfig, file)
	if diff := cmp.Diff(without(before), without(widgets.list(t))); diff != "" {
		t.Errorf("objects (-before +after):\n%s", diff)
	}
}

// TestBackupOfUnreadableObject backs up three objects of which one cannot be read.
func TestBackupOfUnreadableObject(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	for _, name := range []string{"one", "two", "three"} {
		widgets.create(t, "v1", name, "spec: {}")
	}
	etcdPut(t, a.etcd(t), widgets.key("two"), "corrupt")
	file := filepath.Join(t.TempDir(), "widgets.backup")
	lost := strings.TrimPrefix(widgets.key("two"), "/annex/")
	var out, errOut bytes.Buffer
	code := cmd.Execute([]string{"backup", "--kubeconfig=" + a.Kubeconfig, "--resource=" + widgets.name, file}, &out, &errOut)
	if want := "annex: warning: 1 object cannot be read, and in the backup as in etcd: " + lost + "\n"; code != 0 || errOut.String() != want || !strings.Contains(out.String(), "3 objects (") {
		t.Errorf("exit code %d, %q, %q; want the warning %q", code, out.String(), errOut.String(), want)
	}
	if _, err := a.etcd(t).Delete(t.Context(), widgets.key("two")); err != nil {
		t.Fatal(err)
	}
	widgets.deleteCRD(t)
	widgets.waitForCRDDeleted(t)
	restore := []string{"restore", "--kubeconfig=" + a.Kubeconfig, file}
	_, err := run(restore...)
	expect.Error(t, err, "no change was made", lost+" cannot be read", "--skip-unreadable skips it")
	errOut.Reset()
	if code := cmd.Execute(append(restore, "--skip-unreadable"), &out, &errOut); code != 0 || errOut.String() != "annex: warning: 1 object cannot be read, and skipped: "+lost+"\n" {
		t.Errorf("exit code %d, %q", code, errOut.String())
	}
	names := []string{}
	for _, object := range widgets.list(t) {
		names = append(names, object.GetName())
	}
	if !slices.Equal(names, []string{"one", "three"}) {
		t.Errorf("restored %q", names)
	}
}

// TestBackupRights gives users exactly the rights that docs/backup.md lists.
func TestBackupRights(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	widgets.create(t, "v1", "w", "spec: {}")
	widgets.waitForHostedResource(t, "a Store", func(hosted *hostingv1alpha1.HostedResource) bool { return hosted.Spec.StoreName != "" })
	dir := t.TempDir()
	login := func(role string, rules ...rbacv1.PolicyRule) string {
		name := role + "-" + rand.String(5)
		kubeconfig := filepath.Join(dir, name+".kubeconfig")
		mustWrite(t, kubeconfig, []byte(mustRun(t, "kubeconfig", "--data-dir="+a.DataDir, "--user="+name)))
		rights := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
		expect.Create(t, a.Kube.RbacV1().ClusterRoles(), rights)
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
		}
		expect.Create(t, a.Kube.RbacV1().ClusterRoleBindings(), binding)
		return "--kubeconfig=" + kubeconfig
	}
	rule := func(group, verbs string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Verbs: strings.Fields(verbs), Resources: resources}
	}
	const hosting, extensions = "hosting.annex.dev", "apiextensions.k8s.io"
	definitions := rule(extensions, "get", "customresourcedefinitions")
	storeKeeper := login("store-keeper", rule(hosting, "create", "stores/backup"), rule(hosting, "list", "hostedresources"), definitions)
	resourceKeeper := login("resource-keeper", rule(hosting, "get", "hostedresources"), rule(hosting, "create", "hostedresources/backup"), definitions)
	viewer := login("viewer", rule("*", "get list watch", "*"))
	restorer := login("restorer", rule(hosting, "create", "stores/restore"), rule(hosting, "get create patch", "hostedresources"),
		rule(extensions, "get create", "customresourcedefinitions"), rule(extensions, "patch", "customresourcedefinitions/status"))

	// Each command creates a file only if it is allowed, and refuses one that exists.
	file := filepath.Join(dir, "resource.backup")
	for what, args := range map[string][]string{
		"store-keeper":    {"backup", storeKeeper, "--store=default", filepath.Join(dir, "store.backup")},
		"resource-keeper": {"backup", resourceKeeper, "--resource=" + widgets.name, file},
	} {
		poll.UntilNoError(t, "the role "+what+" is in force", func() error {
			_, err := run(args...)
			return err
		})
	}
	poll.UntilDone(t, "the role restorer is in force", func() (bool, string) {
		_, err := run("restore", restorer, file)
		return err != nil && strings.Contains(err.Error(), "exists"), fmt.Sprint(err)
	})
	_, err := run("backup", resourceKeeper, "--store=default", filepath.Join(dir, "x"))
	expect.Error(t, err, "forbidden")
	_, err = run("backup", storeKeeper, "--resource="+widgets.name, filepath.Join(dir, "x"))
	expect.Error(t, err, "forbidden")
	_, err = run("backup", restorer, "--resource="+widgets.name, filepath.Join(dir, "x"))
	expect.Error(t, err, "forbidden")
	_, err = run("backup", viewer, "--resource="+widgets.name, filepath.Join(dir, "x"))
	expect.Error(t, err, `cannot create resource "hostedresources/backup"`)
	_, err = run("backup", viewer, "--store=default", filepath.Join(dir, "x"))
	expect.Error(t, err, `cannot create resource "stores/backup"`)
	widgets.deleteCRD(t)
	widgets.waitForCRDDeleted(t)
	widgets.waitForHostedResourceDeleted(t)
	_, err = run("restore", resourceKeeper, file)
	expect.Error(t, err, "no change was made", "forbidden")
	mustRun(t, "restore", restorer, file)
	poll.UntilNoError(t, "the object is back", func() error {
		_, err := widgets.in("v1").Get(t.Context(), "w", metav1.GetOptions{})
		return err
	})
}

// TestRestoreToExternalEtcd restores a whole Store to an external etcd with TLS.
func TestRestoreToExternalEtcd(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	widgets.fill(t)
	before := widgets.list(t)
	file := filepath.Join(t.TempDir(), "default.backup")
	mustRun(t, "backup", "--kubeconfig="+a.Kubeconfig, "--store=default", file)
	a.Stop(t)

	etcd := etcdcluster.Start(t, etcdcluster.Config{Members: 1})
	flags := append(etcdTLSFlags(t, etcd), "--etcd-servers="+etcd.Endpoints()[0])
	client := etcd.Client(t)
	note := "/annex/_annex/restore"
	if _, err := client.Put(t.Context(), note, "another backup"); err != nil {
		t.Fatal(err)
	}
	_, err := run(append([]string{"restore", file}, flags...)...)
	expect.Error(t, err, "--etcd-servers", "a part of another backup")
	_, err = testserver.TryStartIn(t, t.TempDir(), flags...)
	expect.Error(t, err, "--etcd-servers", "did not come to its end")
	if _, err := client.Delete(t.Context(), note); err != nil {
		t.Fatal(err)
	}
	mustRun(t, append([]string{"restore", file}, flags...)...)
	_, err = run(append([]string{"restore", file}, flags...)...)
	expect.Error(t, err, "--etcd-servers", "there are other keys already")

	back := newAnnex(t, testserver.Start(t, flags...))
	again := widgets.on(back)
	poll.Until(t, "the objects are restored", func() string {
		list, err := back.Dynamic.Resource(again.gvr("v1")).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		return cmp.Diff(without(before), without(list.Items))
	})
}

// dictionaries reads the dictionaries of the resource from etcd.
func (r *resource) dictionaries(t *testing.T) map[string][]byte {
	t.Helper()
	found, err := r.annex.etcd(t).Get(t.Context(), "/annex/_annex/dictionaries/"+r.group+"/widgets/", clientv3.WithPrefix())
	expect.NoError(t, err)
	all := map[string][]byte{}
	for _, kv := range found.Kvs {
		all[string(kv.Key)] = kv.Value
	}
	return all
}

// TestBackupIncludesDictionaries restores objects that need a dictionary on another server,
// with and without the dictionary.
func TestBackupIncludesDictionaries(t *testing.T) {
	t.Parallel()
	home, elsewhere := sharedAnnex(t), readableAnnex(t)
	widgets := home.installCRD(t, newCRD(t, anySchema))
	widgets.createTrainingObjects(t)
	widgets.trainDictionary(t)
	widgets.touch(t, trainingObjects)
	if _, own := compression.DictionaryID(widgets.raw(t, "w-7")); !own {
		t.Fatal("the dictionary is not used")
	}
	before := widgets.list(t)
	file := filepath.Join(t.TempDir(), "widgets.backup")
	mustRun(t, "backup", "--kubeconfig="+home.Kubeconfig, "--resource="+widgets.name, file)

	incomplete := filepath.Join(t.TempDir(), "incomplete.backup")
	copyBackup(t, file, incomplete, func(record backup.Record) bool { return record.Kind != backup.KindDictionary })
	_, err := run("restore", "--kubeconfig="+elsewhere.Kubeconfig, incomplete)
	expect.Error(t, err, "no change was made", "cannot be read", "dictionary")

	mustRun(t, "restore", "--kubeconfig="+elsewhere.Kubeconfig, file)
	there := widgets.on(elsewhere)
	if diff := cmp.Diff(without(before), without(there.list(t))); diff != "" {
		t.Errorf("objects (-home +elsewhere):\n%s", diff)
	}
	if diff := cmp.Diff(widgets.dictionaries(t), there.dictionaries(t)); diff != "" {
		t.Errorf("dictionaries (-home +elsewhere):\n%s", diff)
	}
	if _, own := compression.DictionaryID(there.raw(t, "w-7")); !own {
		t.Error("restored objects are not compressed with the dictionary")
	}
}

// copyBackup copies the records of a backup that keep accepts.
func copyBackup(t *testing.T, from, to string, keep func(backup.Record) bool) {
	t.Helper()
	in, err := os.Open(from)
	expect.NoError(t, err)
	defer in.Close()
	reader, err := backup.NewReader(in)
	expect.NoError(t, err)
	out, err := os.Create(to)
	expect.NoError(t, err)
	defer out.Close()
	writer, err := backup.NewWriter(out, reader.Header())
	for err == nil {
		var record backup.Record
		if record, err = reader.Next(); err == nil && keep(record) {
			err = writer.Write(record)
		}
	}
	if errors.Is(err, io.EOF) {
		_, err = writer.Close()
	}
	expect.NoError(t, err)
}
