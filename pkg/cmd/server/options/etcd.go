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

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
	"github.com/annex-dev/annex/pkg/storage/layer/encryption"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// defaultEtcdPrefix differs from kube-apiserver's /registry, in case they share an etcd.
const defaultEtcdPrefix = "/annex"

const (
	// minObjectBytes is upstream's limit of requests.
	minObjectBytes = 3 << 20

	// maxObjectBytes is bounded because a write needs many times the memory of its object.
	maxObjectBytes = 128 << 20

	// etcdRequestOverhead is the size of a request to etcd besides the object: the key,
	// encryption and conditions.
	etcdRequestOverhead = 1 << 20
)

// Etcd configures the etcd of the Store "default": the embedded one or --etcd-servers.
type Etcd struct {
	*genericoptions.EtcdOptions

	// QuotaBackendBytes bounds the embedded etcd's database. 0 is the default.
	QuotaBackendBytes int64

	// LeaveEtcd is the ID of the etcd that the data directory was used with, to use another.
	LeaveEtcd string

	// MaxObjectBytes bounds the encoded size of objects before compression.
	MaxObjectBytes resource.QuantityValue

	// Compression is the default of resources: Zstd or None.
	Compression string

	// CacheMemoryBudget bounds the memory of the watch caches of custom resources: auto, or bytes.
	CacheMemoryBudget string

	// Disk returns the free and the total bytes of the volume of a folder. Tests replace it.
	Disk func(dir string) (free, size int64, err error)

	// UnsafeNoFsync makes the embedded etcd faster and loses data if the machine crashes. It
	// is for tests and has no flag.
	UnsafeNoFsync bool
}

// NewEtcd returns the defaults: embedded, with protobuf for kinds that support it.
func NewEtcd() *Etcd {
	upstream := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig(defaultEtcdPrefix, nil))
	upstream.DefaultStorageMediaType = runtime.ContentTypeProtobuf
	// Events are numerous, short-lived and rarely watched.
	upstream.WatchCacheSizes = []string{"events#0", "events.events.k8s.io#0"}
	// Replace a leaked key without a restart.
	upstream.EncryptionProviderConfigAutomaticReload = true
	// The deletion of a namespace deletes collections.
	upstream.DeleteCollectionWorkers = 4
	return &Etcd{
		EtcdOptions:    upstream,
		MaxObjectBytes: resource.QuantityValue{Quantity: resource.MustParse("16Mi")},
		Compression:    string(hostingv1alpha1.CompressionZstd),

		CacheMemoryBudget: autoBudget,

		Disk: embeddedetcd.Disk,
	}
}

// AddFlags adds upstream's etcd flags and the embedded etcd's own.
func (o *Etcd) AddFlags(fs *pflag.FlagSet) {
	o.EtcdOptions.AddFlags(fs)
	fs.Lookup("etcd-servers").Usage += " If not set, annex runs an embedded etcd in --data-dir."
	fs.Int64Var(&o.QuotaBackendBytes, "quota-backend-bytes", o.QuotaBackendBytes,
		"The database size at which the embedded etcd refuses writes. 0 means 8 GiB, or half of the volume of --data-dir if that is less.")
	fs.StringVar(&o.LeaveEtcd, "leave-etcd", o.LeaveEtcd,
		"The ID of the etcd that --data-dir was used with, to use another one, without the objects of that etcd or after they were moved. "+
			"Without it annex refuses to start with another etcd, and prints the ID.")
	fs.Var(&o.MaxObjectBytes, "max-object-bytes",
		"The size of the largest object, in bytes of JSON. After compression it must also fit into a request to the Store's etcd: "+
			"the embedded etcd accepts as much as this flag, others accept their --max-request-bytes.")
	fs.StringVar(&o.Compression, "storage-compression", o.Compression,
		"The compression of objects that are written to a Store: Zstd or None. Both kinds of objects can always be read. "+
			"spec.compression of a HostedResource overrides it.")
	fs.StringVar(&o.CacheMemoryBudget, "cache-memory-budget", o.CacheMemoryBudget,
		"The memory of the watch caches of all custom resources together, in bytes. If they would exceed it, the largest are compressed, "+
			"and then read from the Store instead. 0 is unlimited; auto is half of GOMEMLIMIT or of the container's limit, and unlimited without one. "+
			"spec.cache of a HostedResource says how to keep its objects.")
	fs.Lookup("enable-garbage-collector").Usage = "Delete objects whose owners are deleted, and support --cascade=foreground and " +
		"--cascade=orphan. Without it a deletion never affects dependents."
	hide(fs, "etcd-servers-overrides", "storage-backend")
}

// Embedded reports whether annex runs its own etcd.
func (o *Etcd) Embedded() bool { return len(o.StorageConfig.Transport.ServerList) == 0 }

// Complete normalizes the prefix and the servers as Stores require: with a leading slash,
// and without a trailing one.
func (o *Etcd) Complete() {
	o.StorageConfig.Prefix = path.Join("/", o.StorageConfig.Prefix)
	for i, server := range o.StorageConfig.Transport.ServerList {
		o.StorageConfig.Transport.ServerList[i] = strings.TrimSuffix(server, "/")
	}
}

// validateStore validates the Store "default". With an invalid one annex would never be
// ready.
func (o *Etcd) validateStore() []error {
	store := &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: hostingv1alpha1.DefaultStoreName},
		Spec: hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{
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

// Validate checks the flags. It does not connect to the servers.
func (o *Etcd) Validate() []error {
	upstream := *o.EtcdOptions
	if o.Embedded() {
		// Upstream requires a server, and the embedded one is not running yet.
		upstream.StorageConfig.Transport.ServerList = []string{"embedded"}
	}
	// Upstream would treat annex's default as a flag that is set.
	upstream.EncryptionProviderConfigAutomaticReload = o.EncryptionProviderConfigFilepath != ""
	errs := append(upstream.Validate(), o.validateStore()...)
	if len(o.EtcdServersOverrides) > 0 {
		errs = append(errs, fmt.Errorf("--etcd-servers-overrides is not supported: use Stores"))
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
	if _, err := o.CacheBudget(); err != nil {
		errs = append(errs, err)
	}
	if o.QuotaBackendBytes < 0 {
		errs = append(errs, fmt.Errorf("--quota-backend-bytes must not be negative"))
	}
	if o.QuotaBackendBytes > 0 && !o.Embedded() {
		errs = append(errs, fmt.Errorf("--quota-backend-bytes is for the embedded etcd and cannot be combined with --etcd-servers"))
	}
	return errs
}

// autoBudget derives the budget from the limits of the process.
const autoBudget = "auto"

// CacheBudget returns --cache-memory-budget in bytes.
func (o *Etcd) CacheBudget() (int64, error) {
	if o.CacheMemoryBudget == autoBudget {
		return watchcache.DefaultBudget(), nil
	}
	budget, err := resource.ParseQuantity(o.CacheMemoryBudget)
	if err != nil || budget.Value() < 0 {
		return 0, fmt.Errorf("--cache-memory-budget must be %s or a number of bytes, for example 2Gi, and is %q", autoBudget, o.CacheMemoryBudget)
	}
	return budget.Value(), nil
}

// MaxBodyBytes is the size of the largest request. An object is larger in a response, and so
// in a request that sends it back, than in etcd.
func (o *Etcd) MaxBodyBytes() int64 { return o.MaxObjectBytes.Value() + o.MaxObjectBytes.Value()/16 }

// MaxEtcdRequestBytes is the request size that the embedded etcd must accept.
func (o *Etcd) MaxEtcdRequestBytes() int64 { return o.MaxObjectBytes.Value() + etcdRequestOverhead }

// ApplyEncryption applies --encryption-provider-config.
func (o *Etcd) ApplyEncryption(generic *genericapiserver.Config) error {
	if o.EncryptionProviderConfigFilepath == "" {
		return nil
	}
	if err := encryption.Apply(generic, o.EncryptionProviderConfigFilepath, o.EncryptionProviderConfigAutomaticReload); err != nil {
		return fmt.Errorf("--encryption-provider-config: %w", err)
	}
	return nil
}

// Served returns a copy of upstream's options with the given endpoints.
func (o *Etcd) Served(endpoints []string) genericoptions.EtcdOptions {
	served := *o.EtcdOptions
	served.StorageConfig.Transport.ServerList = endpoints
	return served
}
