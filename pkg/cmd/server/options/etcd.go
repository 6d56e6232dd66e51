// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"path"
	"strings"

	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/storage/encryption"
)

// defaultEtcdPrefix differs from kube-apiserver's /registry, so that an etcd
// shared with a cluster by mistake keeps the two apart.
const defaultEtcdPrefix = "/annex"

const (
	// minObjectBytes is what upstream accepts of any kind.
	minObjectBytes = 3 << 20

	// maxObjectBytes keeps mistakes out: a write takes many times the memory of its
	// object.
	maxObjectBytes = 128 << 20

	// etcdRequestOverhead is what a request to etcd has beside the object: its key,
	// and what encryption and the conditions of the write add.
	etcdRequestOverhead = 1 << 20
)

// Etcd says where objects are kept: in the embedded etcd, or in the servers
// that --etcd-servers names.
type Etcd struct {
	*genericoptions.EtcdOptions

	// QuotaBackendBytes bounds the embedded etcd's database; 0 is
	// embeddedetcd's default.
	QuotaBackendBytes int64

	// MaxObjectBytes is the size of the largest object, as it is encoded before
	// it is compressed.
	MaxObjectBytes resource.QuantityValue

	// Compression is how objects are compressed whose resource does not say: Zstd
	// or None.
	Compression string

	// UnsafeNoFsync makes the embedded etcd start and write faster and lose
	// data on a crash of the machine. It is for tests and has no flag.
	UnsafeNoFsync bool
}

// NewEtcd returns the defaults: embedded, protobuf at rest for the kinds that
// have it.
func NewEtcd() *Etcd {
	upstream := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig(defaultEtcdPrefix, nil))
	upstream.DefaultStorageMediaType = runtime.ContentTypeProtobuf
	// Events are many, short-lived and hardly watched.
	upstream.WatchCacheSizes = []string{"events#0", "events.events.k8s.io#0"}
	// A key that leaked is replaced without a restart.
	upstream.EncryptionProviderConfigAutomaticReload = true
	// Deleting a namespace deletes its contents by collection.
	upstream.DeleteCollectionWorkers = 4
	return &Etcd{
		EtcdOptions:    upstream,
		MaxObjectBytes: resource.QuantityValue{Quantity: resource.MustParse("16Mi")},
		Compression:    string(hostingv1alpha1.CompressionZstd),
	}
}

// AddFlags adds upstream's etcd flags and the embedded etcd's own.
func (o *Etcd) AddFlags(fs *pflag.FlagSet) {
	o.EtcdOptions.AddFlags(fs)
	fs.Lookup("etcd-servers").Usage += " If not set, annex runs an etcd of its own inside --data-dir."
	fs.Int64Var(&o.QuotaBackendBytes, "quota-backend-bytes", o.QuotaBackendBytes,
		"The size at which the embedded etcd refuses writes. 0 means the default of 8 GiB.")
	fs.Var(&o.MaxObjectBytes, "max-object-bytes",
		"The largest object, in bytes of JSON. What is left of it after compression must fit into a request to the Store's etcd: "+
			"annex's own takes as much as this flag says, another takes what its --max-request-bytes says.")
	fs.StringVar(&o.Compression, "storage-compression", o.Compression,
		"How objects are compressed that are written to a Store: Zstd or None. What is there already is read in any case. "+
			"A HostedResource can say something else for its resource, in spec.compression.")
	fs.Lookup("enable-garbage-collector").Usage = "Delete objects whose owners are gone, and heed --cascade=foreground and " +
		"--cascade=orphan. Without it every deletion takes the object and nothing else."
	hide(fs, "etcd-servers-overrides", "storage-backend")
}

// Embedded reports whether annex runs its own etcd.
func (o *Etcd) Embedded() bool { return len(o.StorageConfig.Transport.ServerList) == 0 }

// Complete writes the prefix and the servers as Stores have them: upstream takes a
// prefix without a slash before it and servers with one behind them.
func (o *Etcd) Complete() {
	o.StorageConfig.Prefix = path.Join("/", o.StorageConfig.Prefix)
	for i, server := range o.StorageConfig.Transport.ServerList {
		o.StorageConfig.Transport.ServerList[i] = strings.TrimSuffix(server, "/")
	}
}

// validateStore refuses what the Store "default" could not have: annex would start and
// never be ready.
func (o *Etcd) validateStore() []error {
	store := &hosting.Store{
		ObjectMeta: metav1.ObjectMeta{Name: hosting.DefaultStoreName},
		Spec: hosting.StoreSpec{Etcd: &hosting.EtcdStore{
			Endpoints: o.StorageConfig.Transport.ServerList, KeyPrefix: o.StorageConfig.Prefix,
		}},
	}
	if o.Embedded() {
		store.Spec.Etcd.Endpoints = []string{"unix:///embedded"}
	}
	var errs []error
	for _, err := range validation.ValidateStore(store) {
		flag := "--etcd-servers"
		if strings.HasSuffix(err.Field, "keyPrefix") {
			flag = "--etcd-prefix"
		}
		errs = append(errs, fmt.Errorf("%s: %s", flag, err.ErrorBody()))
	}
	return errs
}

// Validate checks the flags, not the servers they name.
func (o *Etcd) Validate() []error {
	upstream := *o.EtcdOptions
	if o.Embedded() {
		// Upstream insists on a server; the embedded one is known only once it runs.
		upstream.StorageConfig.Transport.ServerList = []string{"embedded"}
	}
	// Upstream's default is not to reload, so that it takes the flag for a choice.
	upstream.EncryptionProviderConfigAutomaticReload = o.EncryptionProviderConfigFilepath != ""
	errs := append(upstream.Validate(), o.validateStore()...)
	if len(o.EtcdServersOverrides) > 0 {
		errs = append(errs, fmt.Errorf("--etcd-servers-overrides is not supported: all resources live in one store"))
	}
	if bytes := o.MaxObjectBytes.Value(); bytes < minObjectBytes || bytes > maxObjectBytes {
		errs = append(errs, fmt.Errorf("--max-object-bytes must be between 3Mi and 128Mi, and is %s", o.MaxObjectBytes.String()))
	}
	switch hostingv1alpha1.Compression(o.Compression) {
	case hostingv1alpha1.CompressionZstd, hostingv1alpha1.CompressionNone:
	default:
		errs = append(errs, fmt.Errorf("--storage-compression must be %s or %s, and is %q",
			hostingv1alpha1.CompressionZstd, hostingv1alpha1.CompressionNone, o.Compression))
	}
	if o.QuotaBackendBytes < 0 {
		errs = append(errs, fmt.Errorf("--quota-backend-bytes must not be negative"))
	}
	if o.QuotaBackendBytes > 0 && !o.Embedded() {
		errs = append(errs, fmt.Errorf("--quota-backend-bytes is for the embedded etcd and cannot be combined with --etcd-servers"))
	}
	return errs
}

// MaxBodyBytes is the largest request. An object that is written back as it was
// read has a few bytes more than it has in the Store.
func (o *Etcd) MaxBodyBytes() int64 { return o.MaxObjectBytes.Value() + o.MaxObjectBytes.Value()/16 }

// MaxEtcdRequestBytes is what an etcd must accept to take every object.
func (o *Etcd) MaxEtcdRequestBytes() int64 { return o.MaxObjectBytes.Value() + etcdRequestOverhead }

// ApplyEncryption has generic encrypt objects as --encryption-provider-config says.
func (o *Etcd) ApplyEncryption(generic *genericapiserver.Config) error {
	if o.EncryptionProviderConfigFilepath == "" {
		return nil
	}
	if err := encryption.Apply(generic, o.EncryptionProviderConfigFilepath, o.EncryptionProviderConfigAutomaticReload); err != nil {
		return fmt.Errorf("--encryption-provider-config: %w", err)
	}
	return nil
}

// Served returns upstream's options for a server that keeps its objects at the
// given endpoints; the receiver is not changed.
func (o *Etcd) Served(endpoints []string) genericoptions.EtcdOptions {
	served := *o.EtcdOptions
	served.StorageConfig.Transport.ServerList = endpoints
	return served
}
