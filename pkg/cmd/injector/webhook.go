// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/injection"
)

const resync = 10 * time.Minute

// webhook answers reviews with what informers have.
type webhook struct {
	source *injection.Source
	// namespaceLabels returns the labels of a namespace.
	namespaceLabels func(ctx context.Context, name string) (map[string]string, error)
	reviews         inFlight
	synced          []cache.InformerSynced
	start           func(ctx context.Context)
	shutdown        func()
}

func newWebhook(hosting annexclient.Interface, kube kubernetes.Interface, extensions apiextensionsclient.Interface) (*webhook, error) {
	profileFactory := annexinformers.NewSharedInformerFactory(hosting, resync)
	kubeFactory := informers.NewSharedInformerFactory(kube, resync)
	definitionFactory := crdinformers.NewSharedInformerFactory(extensions, resync)
	profiles := profileFactory.Hosting().V1alpha1().InjectionProfiles().Informer()
	if err := profiles.AddIndexers(injection.Indexers()); err != nil {
		return nil, fmt.Errorf("index the injection profiles: %w", err)
	}
	namespaces, definitions := kubeFactory.Core().V1().Namespaces(), definitionFactory.Apiextensions().V1().CustomResourceDefinitions()
	return &webhook{
		source: &injection.Source{Profiles: profiles.GetIndexer(), Outlines: definitions.Lister(), Definitions: definitions.Lister()},
		synced: []cache.InformerSynced{profiles.HasSynced, namespaces.Informer().HasSynced, definitions.Informer().HasSynced},
		namespaceLabels: func(ctx context.Context, name string) (map[string]string, error) {
			found, err := namespaces.Lister().Get(name)
			if apierrors.IsNotFound(err) {
				// It may be newer than the cache.
				found, err = kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			}
			if err != nil {
				return nil, err
			}
			return found.Labels, nil
		},
		start: func(ctx context.Context) {
			profileFactory.StartWithContext(ctx)
			kubeFactory.StartWithContext(ctx)
			definitionFactory.StartWithContext(ctx)
		},
		shutdown: func() {
			profileFactory.Shutdown()
			kubeFactory.Shutdown()
			definitionFactory.Shutdown()
		},
	}, nil
}

func (w *webhook) ready() bool {
	for _, synced := range w.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// handler serves reviews, to callers with a certificate of the CA for one of the names, and probes.
func (w *webhook) handler(ca dynamiccertificates.CAContentProvider, names []string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mutate", fromCallers(ca, names, w.reviews.limit(w.review)))
	mux.HandleFunc("GET /livez", func(response http.ResponseWriter, _ *http.Request) { fmt.Fprintln(response, "ok") })
	mux.HandleFunc("GET /readyz", func(response http.ResponseWriter, _ *http.Request) {
		if !w.ready() {
			http.Error(response, "the caches of injection profiles, namespaces and definitions are not filled", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(response, "ok")
	})
	return mux
}
