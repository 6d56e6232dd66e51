// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/test/crds"
)

const (
	// corpusSize is the number of objects that are made up.
	corpusSize = 1200
	// untrained is fewer objects than a dictionary is trained with.
	untrained = 50
	// writeRounds is the number of rounds in which the second half of the objects is written.
	writeRounds = 10
)

// measureCompression measures sizes and writes of compressed objects.
func measureCompression(ctx context.Context, s *session) error {
	var servers []*server
	for i, codec := range []string{"Zstd", "None"} {
		socket, etcd, err := s.startEtcd(ctx, codec+"-etcd")
		if err != nil {
			return err
		}
		annex, err := s.startAnnex(ctx, codec, []string{"--etcd-servers=unix://" + socket, "--storage-compression=" + codec})
		if err != nil {
			return err
		}
		annex.etcd = etcd
		servers = append(servers, annex.as(s.Servers[i]))
	}
	corpora, err := loadCorpora(ctx)
	if err != nil {
		return err
	}
	for _, c := range corpora {
		if err := s.compress(ctx, c, servers[0], servers[1]); err != nil {
			return fmt.Errorf("%s: %w", c.crd.Name, err)
		}
	}
	return nil
}

// compress measures the first objects of a CRD, before it has a dictionary, and the second half,
// on which its dictionary was not trained.
func (s *session) compress(ctx context.Context, c *corpus, compressed, plain *server) error {
	for _, server := range []*server{compressed, plain} {
		if _, err := server.define(ctx, c.crd); err != nil {
			return err
		}
	}
	half := len(c.objects) / 2
	write := func(ctx context.Context, s *server, first, last int) (work, error) {
		return countUp(1, first, last, func(i int) (response, error) { return response{}, c.apply(ctx, s, i) })
	}
	if _, err := write(ctx, compressed, 0, untrained); err != nil {
		return err
	}
	first, err := c.measure(ctx, compressed)
	if err != nil {
		return err
	}
	if _, err := write(ctx, compressed, untrained, half); err != nil {
		return err
	}
	before, err := c.measure(ctx, compressed)
	if err != nil {
		return err
	}
	prefix := "/annex/_annex/dictionaries/" + c.crd.Spec.Group + "/" + c.crd.Spec.Names.Plural + "/"
	_, err = since(ctx, time.Now(), 20*retryInterval, "a dictionary", func() error {
		found, err := compressed.etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && found.Count == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	if err != nil {
		return err
	}
	done := map[string]int{}
	o := operation{name: "server-side apply of " + c.crd.Spec.Names.Plural, per: "request", target: 1.15, prepare: func(_ context.Context, s *server) (round, error) {
		i := done[s.name]
		done[s.name]++
		return round{run: func(ctx context.Context) (work, error) {
			return write(ctx, s, half+half*i/writeRounds, half+half*(i+1)/writeRounds)
		}}, nil
	}}
	if err := s.compare(ctx, o, writeRounds, compressed, plain); err != nil {
		return err
	}
	after, err := c.measure(ctx, compressed)
	if err != nil {
		return err
	}
	s.addSizes(c.crd.Spec.Names.Plural+", generic dictionary", 0.333, footprint{}, first)
	s.addSizes(c.crd.Spec.Names.Plural+", own dictionary", 0.2, before, after)
	return nil
}

// footprint is the number of a resource's objects, and their bytes in etcd and before compression.
type footprint struct{ objects, stored, plain int64 }

// measure returns the footprint once annex has counted the objects.
func (c *corpus) measure(ctx context.Context, s *server) (footprint, error) {
	var f footprint
	_, err := since(ctx, time.Now(), 20*retryInterval, "the size of all objects", func() error {
		hosted, err := s.api.HostedResources().Get(ctx, c.crd.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		f = footprint{hosted.Status.Objects, hosted.Status.StoredBytes, hosted.Status.Bytes}
		if f.objects != c.written[s.name] {
			return fmt.Errorf("%d of %d objects are counted", f.objects, c.written[s.name])
		}
		return nil
	})
	return f, err
}

// addSizes adds the average sizes of the objects that were written between two measurements.
func (s *session) addSizes(name string, target float64, before, after footprint) {
	objects := after.objects - before.objects
	s.Figures = append(s.Figures, figure{Name: fmt.Sprintf("average of %d %s", objects, name), Unit: "B", Target: target, Measured: map[string]float64{
		s.Servers[0]: float64(after.stored-before.stored) / float64(objects), s.Servers[1]: float64(after.plain-before.plain) / float64(objects),
	}})
}

// corpus is a CRD and objects of it.
type corpus struct {
	crd     *apiextensionsv1.CustomResourceDefinition
	objects []*unstructured.Unstructured
	// written is the number of objects on each server.
	written map[string]int64
}

// loadCorpora returns objects of a CRD that the generic dictionary does not know, and of two that it
// knows.
func loadCorpora(ctx context.Context) ([]*corpus, error) {
	made, err := decode(func(i int) ([]byte, error) { return records.object(i, 2500) })
	if err != nil {
		return nil, err
	}
	corpora := []*corpus{{crd: records.definition(), objects: made, written: map[string]int64{}}}
	for _, source := range crds.Sources() {
		manifests, err := crds.Load(ctx, source)
		if err != nil {
			return nil, err
		}
		for _, manifest := range manifests {
			c := &corpus{crd: manifest.CRD, written: map[string]int64{}}
			c.crd.Spec.Conversion = nil // needs a webhook of the project
			c.crd.Status.StoredVersions = nil
			switch manifest.CRD.Name {
			case "certificates.cert-manager.io":
				// The project has few; clusters have one for every host.
				c.objects, err = decode(certificate)
			case "clusterpolicies.kyverno.io":
				c.objects, err = crds.Objects(ctx, source, manifest)
				random := rand.New(rand.NewPCG(1, 2))
				random.Shuffle(len(c.objects), func(i, j int) { c.objects[i], c.objects[j] = c.objects[j], c.objects[i] })
			default:
				continue
			}
			if err != nil {
				return nil, err
			}
			corpora = append(corpora, c)
		}
	}
	return corpora, nil
}

// decode returns objects that are made up.
func decode(encoded func(i int) ([]byte, error)) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for i := range corpusSize {
		content, err := encoded(i)
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(content); err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// apply writes an object and its status under a unique name. Invalid objects are skipped.
func (c *corpus) apply(ctx context.Context, s *server, i int) error {
	object := c.objects[i].DeepCopy()
	name := fmt.Sprintf("%.40s-%d", object.GetName(), i)
	object.SetName(name)
	object.SetNamespace("")
	resources := s.api.Dynamic.Resource(object.GroupVersionKind().GroupVersion().WithResource(c.crd.Spec.Names.Plural))
	var client dynamic.ResourceInterface = resources
	if c.crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		// Dictionaries have text of several namespaces only.
		object.SetNamespace([]string{metav1.NamespaceDefault, metav1.NamespaceSystem}[i%2])
		client = resources.Namespace(object.GetNamespace())
	}
	status, hasStatus := object.Object["status"]
	_, err := client.Apply(ctx, name, object, metav1.ApplyOptions{FieldManager: "bench", Force: true})
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsInternalError(err) {
		return nil
	}
	if err == nil && hasStatus {
		reported := map[string]any{"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "metadata": map[string]any{"name": name}, "status": status}
		_, err = client.ApplyStatus(ctx, name, &unstructured.Unstructured{Object: reported}, metav1.ApplyOptions{FieldManager: "bench-controller", Force: true})
	}
	c.written[s.name]++
	return err
}

// certificate returns a Certificate of a cluster with many hosts, of about 2.5 kB with its status.
func certificate(i int) ([]byte, error) {
	random := rand.New(rand.NewPCG(3, uint64(i)))
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
	name, domain := word()+"-"+word(), word()+".example.com"
	hosts := []string{domain}
	for range random.IntN(4) {
		hosts = append(hosts, word()+"."+domain)
	}
	names, err := json.Marshal(hosts)
	return fmt.Appendf(nil, `{"apiVersion":"cert-manager.io/v1","kind":"Certificate","metadata":{"name":%q,
		"labels":{"app.kubernetes.io/name":%q,"app.kubernetes.io/instance":%q,"app.kubernetes.io/managed-by":"Helm","helm.sh/chart":"%s-%d.1.0","team":%q},
		"annotations":{"meta.helm.sh/release-name":%q,"meta.helm.sh/release-namespace":"default"},
		"ownerReferences":[{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","name":%q,"uid":"%08x-%04x-4000-8000-%012x","controller":true,"blockOwnerDeletion":true}]},
		"spec":{"commonName":%q,"dnsNames":%s,"duration":"2160h0m0s","renewBefore":"360h0m0s","secretName":"%s-tls","usages":["digital signature","key encipherment","server auth"],
		"issuerRef":{"group":"cert-manager.io","kind":"ClusterIssuer","name":"letsencrypt-prod"},"privateKey":{"algorithm":"RSA","rotationPolicy":"Always","size":2048}},
		"status":{"conditions":[{"lastTransitionTime":%q,"message":"Certificate is up to date and has not expired","observedGeneration":1,"reason":"Ready","status":"True","type":"Ready"}],
		"notAfter":%q,"notBefore":%q,"renewalTime":%q,"revision":%d}}`,
		name, name, word(), word(), random.IntN(9), word(), name, name, random.Uint32(), random.IntN(1<<16), random.Int64N(1<<48),
		domain, names, name, when(), when(), when(), when(), 1+random.IntN(9)), err
}
