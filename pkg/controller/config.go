// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/store"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/usage"
)

// UsageTracker knows how much there is of each resource. A *usage.Tracker is one.
type UsageTracker interface {
	// AddHandler has changes reported to a handler.
	AddHandler(handler usage.Handler)
	// HasSynced reports whether the usage is known.
	HasSynced() bool
	// Usage is the usage of one resource.
	Usage(resource schema.GroupResource) usage.Usage
	// Total is the usage of all resources together.
	Total() usage.Usage
}

// Config holds what the controllers depend on: annex's own clients and informers
// and the etcd behind them.
type Config struct {
	AnnexKube          kubernetes.Interface
	AnnexAPIExtensions apiextensionsclient.Interface
	AnnexHosting       annexclient.Interface
	AnnexMetadata      metadata.Interface

	// AnnexInformers and AnnexAPIExtensionsInformers may be shared with the
	// server, and run already.
	AnnexInformers              informers.SharedInformerFactory
	AnnexAPIExtensionsInformers apiextensionsinformers.SharedInformerFactory
	// AnnexHostingInformers are the controllers' own: Run starts and stops them.
	AnnexHostingInformers annexinformers.SharedInformerFactory

	// Usage tracks the objects in AnnexEtcd.
	Usage UsageTracker
	// AnnexEtcd and EtcdEndpoints are the etcd that DefaultStore describes.
	AnnexEtcd     store.EtcdClient
	EtcdEndpoints []string
	// DefaultStore is the spec of the Store "default", when that has to be made.
	DefaultStore hostingv1alpha1.StoreSpec

	// NamespaceSettlePeriod replaces namespace.DefaultSettlePeriod when positive.
	NamespaceSettlePeriod time.Duration
}

// startInformers starts the informers that do not run yet, and returns what waits
// for the controllers' own to stop after ctx is done.
func (c Config) startInformers(ctx context.Context) (wait func()) {
	c.AnnexInformers.StartWithContext(ctx)
	c.AnnexAPIExtensionsInformers.Start(ctx.Done())
	c.AnnexHostingInformers.StartWithContext(ctx)
	return c.AnnexHostingInformers.Shutdown
}
