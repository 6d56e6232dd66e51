// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/process"
)

const (
	// The targets are for objects of about 2.5 kB.
	shortest, longest = 1800, 3500
	// fleet is the number of certificates.
	fleet = 600
	// The two servers alternate, for writeRounds rounds of roundWrites each.
	writeRounds, roundWrites = 15, 40
)

// stored is an annex with a client of its etcd.
type stored struct {
	*process.Annex
	*clients.Clients

	etcd *clientv3.Client
}

func (b *bench) openStored(ctx context.Context, name string, flags ...string) (*stored, error) {
	dataDir := filepath.Join(b.dir, name)
	annex, err := process.Start(b.binary, dataDir, flags...)
	if err != nil {
		return nil, err
	}
	s := &stored{Annex: annex}
	if err := s.connect(ctx, dataDir); err != nil {
		annex.Kill()
		return nil, err
	}
	return s, nil
}

func (s *stored) connect(ctx context.Context, dataDir string) error {
	if err := s.WaitReady(ctx); err != nil {
		return err
	}
	var err error
	if s.Clients, err = connect(s.Annex); err != nil {
		return err
	}
	s.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(dataDir, "etcd", "client.sock")}})
	return err
}

// compression measures the gain and cost of compression.
func (b *bench) compression(ctx context.Context) error {
	packed, err := b.openStored(ctx, "packed")
	if err != nil {
		return err
	}
	defer packed.Kill()
	plain, err := b.openStored(ctx, "plain", "--storage-compression=None")
	if err != nil {
		return err
	}
	defer plain.Kill()
	all := sizes{}
	for _, kind := range []struct{ source, name string }{
		{"cert-manager", "certificates.cert-manager.io"},
		{"kyverno", "clusterpolicies.kyverno.io"},
	} {
		of, err := packed.measure(ctx, kind.source, kind.name)
		if err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
		average := of.plain / max(1, of.objects)
		name := fmt.Sprintf("%s, %d of %d B on average", kind.name, of.objects, average)
		b.add(figure{name: "stored/plain bytes, own dictionary: " + name, measured: ratio(of.own, of.plain), unit: ""})
		b.add(figure{name: "stored/plain bytes, generic dictionary: " + name, measured: ratio(of.generic, of.plain), unit: ""})
		b.add(figure{name: "stored/plain bytes, generic dictionary that knows no word of their schema: " + name, measured: ratio(of.strange, of.plain), unit: ""})
		all.add(of.medium[0])
	}
	b.add(figure{name: fmt.Sprintf("stored/plain bytes, own dictionary, all %d of about 2.5 kB", all.objects), measured: ratio(all.own, all.plain), target: 0.2})
	b.add(figure{name: "stored/plain bytes, generic dictionary, the same", measured: ratio(all.generic, all.plain), target: 0.333})
	b.add(figure{name: "stored/plain bytes, generic dictionary that knows no word of their schema, the same", measured: ratio(all.strange, all.plain)})
	return b.compareWrites(ctx, packed, plain)
}

// sizes are sums of bytes of objects.
type sizes struct {
	objects, plain, own, generic int
	// strange is generic with unknown words in spec and status.
	strange int
	medium  []sizes // those of about 2.5 kB
}

func (s *sizes) add(other sizes) {
	s.objects += other.objects
	s.plain += other.plain
	s.own += other.own
	s.generic += other.generic
	s.strange += other.strange
}

func ratio(of, to int) float64 { return float64(of) / float64(max(1, to)) }

// measure writes half of the objects of a CRD, waits for a dictionary, and measures the
// other half, on which the dictionary was not trained.
func (s *stored) measure(ctx context.Context, source, name string) (sizes, error) {
	manifest, objects, err := findObjects(ctx, source, name)
	if err != nil {
		return sizes{}, err
	}
	if err := s.install(ctx, manifest); err != nil {
		return sizes{}, err
	}
	resource := schema.GroupResource{Group: manifest.CRD.Spec.Group, Resource: manifest.CRD.Spec.Names.Plural}
	half := len(objects) / 2
	if _, err := s.write(ctx, manifest, objects[:half], 0); err != nil {
		return sizes{}, err
	}
	if err := s.waitDictionary(ctx, resource); err != nil {
		return sizes{}, err
	}
	written, err := s.write(ctx, manifest, objects[half:], half)
	if err != nil {
		return sizes{}, err
	}
	return s.weigh(ctx, resource, written)
}

// findObjects returns the objects of a CRD, shuffled with a fixed seed.
func findObjects(ctx context.Context, source, name string) (crds.Manifest, []*unstructured.Unstructured, error) {
	for _, s := range crds.Sources() {
		if s.Name != source {
			continue
		}
		manifests, err := crds.Load(ctx, s)
		if err != nil {
			return crds.Manifest{}, nil, err
		}
		for _, manifest := range manifests {
			if manifest.CRD.Name != name {
				continue
			}
			if manifest.CRD.Spec.Names.Kind == "Certificate" {
				// The project has few; clusters have one for every host.
				return manifest, certificates(fleet), nil
			}
			objects, err := crds.Objects(ctx, s, manifest)
			random := rand.New(rand.NewPCG(1, 2))
			random.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
			return manifest, objects, err
		}
	}
	return crds.Manifest{}, nil, errors.New("there is no such CRD")
}

func (s *stored) install(ctx context.Context, manifest crds.Manifest) error {
	crd := manifest.CRD.DeepCopy()
	crd.Spec.Conversion = nil // needs a webhook of the project
	crd.Status.StoredVersions = nil
	_, err := s.CRDs().Create(ctx, crd, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return waitServed(ctx, s.Clients, crd, usualRetries)
}

// write applies objects under unique names, and returns the keys of the valid ones.
func (s *stored) write(ctx context.Context, manifest crds.Manifest, objects []*unstructured.Unstructured, first int) (written []string, err error) {
	names := manifest.CRD.Spec.Names
	for i, object := range objects {
		name := fmt.Sprintf("%.40s-%d", object.GetName(), first+i)
		resource := object.GroupVersionKind().GroupVersion().WithResource(names.Plural)
		var client dynamic.ResourceInterface = s.Dynamic.Resource(resource)
		key := name
		if manifest.CRD.Spec.Scope == "Namespaced" {
			// Dictionaries have text of several namespaces only.
			namespace := []string{metav1.NamespaceDefault, metav1.NamespaceSystem}[i%2]
			client, key = s.Dynamic.Resource(resource).Namespace(namespace), namespace+"/"+name
			object.SetNamespace(namespace)
		}
		object.SetName(name)
		options := metav1.ApplyOptions{FieldManager: "bench", Force: true}
		status, hasStatus := object.Object["status"]
		_, err := client.Apply(ctx, name, object, options)
		if err == nil && hasStatus {
			reported := object.DeepCopy()
			reported.Object = map[string]any{"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "metadata": map[string]any{"name": name}, "status": status}
			options.FieldManager = "bench-controller"
			_, err = client.ApplyStatus(ctx, name, reported, options)
		}
		switch {
		case err == nil:
			written = append(written, key)
		case !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsInternalError(err):
			return nil, err
		}
	}
	return written, nil
}

// waitDictionary waits until the resource has one.
func (s *stored) waitDictionary(ctx context.Context, resource schema.GroupResource) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		found, err := s.etcd.Get(ctx, keys.Dictionaries("/annex", resource), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || found.Count > 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no dictionary of %s within %s", resource, limit)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// weigh compares stored sizes with uncompressed ones.
func (s *stored) weigh(ctx context.Context, resource schema.GroupResource, written []string) (sizes, error) {
	generic, release := compression.NewManager().Transformer(compression.Resource{
		GroupResource: resource, Enabled: func() bool { return true },
	})
	defer release()
	sum := sizes{medium: []sizes{{}}}
	for _, key := range written {
		key = keys.Objects("/annex", resource) + key
		found, err := s.etcd.Get(ctx, key)
		if err != nil || len(found.Kvs) != 1 {
			return sum, fmt.Errorf("read %s: %w", key, errors.Join(err, errors.New("it must be there")))
		}
		own := found.Kvs[0].Value
		data, err := compression.Decode(own, func(id uint32) ([]byte, error) {
			found, err := s.etcd.Get(ctx, keys.Dictionary("/annex", resource, strconv.FormatUint(uint64(id), 10)))
			if err != nil || len(found.Kvs) != 1 {
				return nil, fmt.Errorf("no dictionary %d: %w", id, err)
			}
			return found.Kvs[0].Value, nil
		})
		if err != nil {
			return sum, err
		}
		without, err := generic.TransformToStorage(ctx, data, value.DefaultContext(key))
		if err != nil {
			return sum, err
		}
		foreign, err := estrange(data)
		if err != nil {
			return sum, err
		}
		strange, err := generic.TransformToStorage(ctx, foreign, value.DefaultContext(key))
		if err != nil {
			return sum, err
		}
		one := sizes{objects: 1, plain: len(data), own: len(own), generic: len(without), strange: len(strange)}
		sum.add(one)
		if len(data) >= shortest && len(data) <= longest {
			sum.medium[0].add(one)
		}
	}
	return sum, nil
}

// estrange replaces the words of an object in all fields of its schema, keeping its length
// and regularity: the generic dictionary was made for well-known CRDs.
func estrange(data []byte) ([]byte, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	for key, value := range object.Object {
		if key != "apiVersion" && key != "kind" && key != "metadata" {
			object.Object[key] = otherWords(value)
		}
	}
	managed, _, err := unstructured.NestedSlice(object.Object, "metadata", "managedFields")
	if err != nil {
		return nil, err
	}
	for _, entry := range managed {
		fields, _, err := unstructured.NestedMap(entry.(map[string]any), "fieldsV1")
		if err != nil {
			return nil, err
		}
		for key, value := range fields {
			if key != "f:metadata" {
				fields[key] = otherWords(value)
			}
		}
		entry.(map[string]any)["fieldsV1"] = fields
	}
	if err := unstructured.SetNestedSlice(object.Object, managed, "metadata", "managedFields"); err != nil {
		return nil, err
	}
	return object.MarshalJSON()
}

// otherWords applies ROT13, except to the marker of a field.
func otherWords(value any) any {
	switch value := value.(type) {
	case string:
		marked, found := strings.CutPrefix(value, "f:")
		other := strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z':
				return 'a' + (r-'a'+13)%26
			case r >= 'A' && r <= 'Z':
				return 'A' + (r-'A'+13)%26
			}
			return r
		}, marked)
		if found {
			return "f:" + other
		}
		return other
	case []any:
		for i := range value {
			value[i] = otherWords(value[i])
		}
		return value
	case map[string]any:
		renamed := make(map[string]any, len(value))
		for key, inner := range value {
			renamed[otherWords(key).(string)] = otherWords(inner)
		}
		return renamed
	}
	return value
}

// compareWrites writes the same objects to both servers alternately, so that other load of
// the machine affects both.
func (b *bench) compareWrites(ctx context.Context, packed, plain *stored) error {
	manifest, objects, err := findObjects(ctx, "cert-manager", "certificates.cert-manager.io")
	if err != nil {
		return err
	}
	if err := plain.install(ctx, manifest); err != nil {
		return err
	}
	var ratios []float64
	for round := range writeRounds {
		took := map[*stored]time.Duration{}
		order := []*stored{packed, plain}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			batch := make([]*unstructured.Unstructured, roundWrites)
			for i := range batch {
				batch[i] = objects[(round*roundWrites+i)%len(objects)].DeepCopy()
			}
			began := time.Now()
			if _, err := s.write(ctx, manifest, batch, fleet+round*roundWrites); err != nil {
				return err
			}
			took[s] = time.Since(began)
		}
		ratios = append(ratios, float64(took[packed])/float64(took[plain]))
	}
	slices.Sort(ratios)
	b.add(figure{name: fmt.Sprintf("writes with compression/without, median of %d rounds", writeRounds), measured: ratios[len(ratios)/2], target: 1.15})
	return nil
}

// certificates returns Certificates of a cluster with many hosts, about 2.5 kB each with
// their status.
func certificates(count int) []*unstructured.Unstructured {
	random := rand.New(rand.NewPCG(3, 4))
	word := func() string {
		letters := make([]byte, 4+random.IntN(7))
		for i := range letters {
			letters[i] = byte('a' + min(random.IntN(26), random.IntN(26)))
		}
		return string(letters)
	}
	when := func() string {
		return time.Unix(1_700_000_000+random.Int64N(100_000_000), 0).UTC().Format(time.RFC3339)
	}
	var all []*unstructured.Unstructured
	for range count {
		name, domain := word()+"-"+word(), word()+".example.com"
		hosts := []any{domain}
		for range random.IntN(4) {
			hosts = append(hosts, word()+"."+domain)
		}
		content := fmt.Sprintf(`{"apiVersion":"cert-manager.io/v1","kind":"Certificate","metadata":{"name":%q,
			"labels":{"app.kubernetes.io/name":%q,"app.kubernetes.io/instance":%q,"app.kubernetes.io/managed-by":"Helm","helm.sh/chart":"%s-%d.1.0","team":%q},
			"annotations":{"meta.helm.sh/release-name":%q,"meta.helm.sh/release-namespace":"default"},
			"ownerReferences":[{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","name":%q,"uid":"%08x-%04x-4000-8000-%012x","controller":true,"blockOwnerDeletion":true}]},
			"spec":{"commonName":%q,"duration":"2160h0m0s","renewBefore":"360h0m0s","secretName":"%s-tls","usages":["digital signature","key encipherment","server auth"],
			"issuerRef":{"group":"cert-manager.io","kind":"ClusterIssuer","name":"letsencrypt-prod"},"privateKey":{"algorithm":"RSA","rotationPolicy":"Always","size":2048}},
			"status":{"conditions":[{"lastTransitionTime":%q,"message":"Certificate is up to date and has not expired","observedGeneration":1,"reason":"Ready","status":"True","type":"Ready"}],
			"notAfter":%q,"notBefore":%q,"renewalTime":%q,"revision":%d}}`,
			name, name, word(), word(), random.IntN(9), word(), name, name, random.Uint32(), random.IntN(1<<16), random.Int64N(1<<48),
			domain, name, when(), when(), when(), when(), 1+random.IntN(9))
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(content), object); err != nil {
			panic(err) // the literal is above
		}
		// There is a list in the interface, not in the format.
		_ = unstructured.SetNestedSlice(object.Object, hosts, "spec", "dnsNames")
		all = append(all, object)
	}
	return all
}
