// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conventions

// rule defines what the packages that match a pattern may import. The standard library is
// always allowed.
//
// Patterns are paths below the module's root, or paths of other modules. An
// element in braces matches any one element and stands for the same one in ours;
// `...` at the end matches the path before it and everything below.
type rule struct {
	// packages is a pattern. The first matching rule applies to a package.
	packages string
	// duty is the purpose of these packages, in one sentence.
	duty string
	// ours are packages of this module that may be imported.
	ours []string
	// others are packages of other modules that may be imported.
	others []string
}

// Imports of several rules.
var (
	machinery = []string{"k8s.io/apimachinery/...", "k8s.io/utils/...", "k8s.io/klog/v2/..."}
	apiTypes  = append([]string{"k8s.io/api/...", "k8s.io/apiextensions-apiserver/pkg/apis/...", "k8s.io/kube-aggregator/pkg/apis/..."}, machinery...)
	clients   = append([]string{"k8s.io/client-go/...", "k8s.io/apiextensions-apiserver/pkg/apihelpers", "k8s.io/apiextensions-apiserver/pkg/client/...", "k8s.io/kube-aggregator/pkg/client/..."}, apiTypes...)
	flags     = []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/component-base/..."}
)

// rules is the architecture, from packages without dependencies to those that depend on all.
var rules = []rule{
	{
		packages: "pkg/apis/meta/validation",
		duty:     "Validation that several groups share.",
		others:   apiTypes,
	},
	{
		packages: "pkg/apis/{group}/validation",
		duty:     "Validation that needs only the object, old and new; expressions are compiled as the plugins do.",
		ours:     []string{"pkg/apis/{group}/...", "pkg/apis/meta/validation"},
		others: append([]string{
			"k8s.io/apiserver/pkg/admission/plugin/...", "k8s.io/apiserver/pkg/apis/...", "k8s.io/apiserver/pkg/cel/...", "k8s.io/apiserver/pkg/util/...",
			"k8s.io/client-go/util/jsonpath",
		}, apiTypes...),
	},
	{
		packages: "pkg/apis/scheme",
		duty:     "The scheme and codecs of everything that is compiled in, with the defaults of Kubernetes' groups.",
		ours:     []string{"pkg/apis/hosting/v1alpha1"},
		others:   apiTypes,
	},
	{
		packages: "pkg/apis/hosting/...",
		duty:     "The types of annex's own group, their defaults and conversions.",
		others:   apiTypes,
	},
	{
		packages: "pkg/table",
		duty:     "Tables for kubectl, made from columns, and the cells that commands print too.",
		others:   machinery,
	},
	{
		packages: "pkg/generated/openapi",
		duty:     "The schemas of all compiled-in types; generated.",
		others:   append([]string{"k8s.io/kube-openapi/..."}, apiTypes...),
		ours:     []string{"pkg/apis/..."},
	},
	{
		packages: "pkg/generated/...",
		duty:     "Clients, informers, listers and apply configurations; generated.",
		ours:     []string{"pkg/apis/...", "pkg/generated/..."},
		others:   append([]string{"sigs.k8s.io/structured-merge-diff/...", "k8s.io/kube-openapi/..."}, clients...),
	},
	{
		packages: "pkg/version",
		duty:     "The versions of annex and of the Kubernetes it is built from.",
		others:   append([]string{"k8s.io/component-base/..."}, machinery...),
	},
	{
		packages: "pkg/configfile",
		duty:     "Reloads configuration files and reads the kubeconfigs of webhooks, and reports the line of an error.",
		others: append([]string{
			"go.yaml.in/yaml/v3", "k8s.io/apiserver/pkg/util/filesystem", "k8s.io/client-go/rest", "k8s.io/client-go/tools/clientcmd/...",
		}, machinery...),
	},
	{
		packages: "pkg/datadir",
		duty:     "The data directory: layout, lock and owner.",
		others:   append([]string{"golang.org/x/sys/..."}, machinery...),
	},
	{
		packages: "pkg/pki",
		duty:     "The certificates and the kubeconfig that annex creates.",
		ours:     []string{"pkg/datadir"},
		others:   append([]string{"k8s.io/client-go/...", "k8s.io/component-base/..."}, machinery...),
	},
	{
		packages: "pkg/standalone/serviceaccount",
		duty:     "Service account tokens: issuing, authentication, and the keys for their verification.",
		others:   append([]string{"gopkg.in/go-jose/go-jose.v2/...", "k8s.io/apiserver/pkg/authentication/..."}, clients...),
	},
	{
		packages: "pkg/aggregated/servingca",
		duty:     "The serving certificate for the main cluster, and the CA bundle that verifies it.",
		ours:     []string{"pkg/apis/hosting/v1alpha1", "pkg/pki"},
		others:   append([]string{"k8s.io/apiserver/pkg/server/dynamiccertificates", "k8s.io/component-base/metrics/..."}, clients...),
	},
	{
		packages: "pkg/storage/etcd/embeddedetcd",
		duty:     "Starts and stops the etcd inside the process; imports no other package of annex.",
		others: append([]string{"golang.org/x/sys/unix",
			"go.etcd.io/...", "go.uber.org/zap/...", "google.golang.org/grpc/...", "github.com/prometheus/client_golang/...",
			"k8s.io/component-base/metrics/...",
		}, machinery...),
	},
	{
		packages: "pkg/storage/etcd/embeddedetcd/etcdtest",
		duty:     "Runs a real etcd, or an imitation of one, in the process of a test.",
		ours:     []string{"pkg/storage/etcd/embeddedetcd"},
		others:   []string{"go.etcd.io/etcd/api/v3/etcdserverpb", "go.etcd.io/etcd/api/v3/version", "go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/client/v3/kubernetes", "go.etcd.io/etcd/server/v3/embed", "go.uber.org/zap", "google.golang.org/grpc"},
	},
	{
		packages: "pkg/storage/etcd/keys",
		duty:     "The keys that annex uses in the etcd of a Store.",
		others:   append([]string{"go.etcd.io/etcd/client/v3"}, machinery...),
	},
	{
		packages: "pkg/observers",
		duty:     "Sets of observers of changes.",
	},
	{
		packages: "pkg/stack",
		duty:     "Stacks of goroutines.",
	},
	{
		packages: "pkg/storage/etcd/usage",
		duty:     "Counts the objects and bytes of each resource in etcd.",
		ours:     []string{"pkg/observers", "pkg/storage/etcd/keys", "pkg/storage/etcd/etcdkv"},
		others:   append([]string{"go.etcd.io/etcd/client/v3/...", "go.etcd.io/etcd/api/v3/...", "k8s.io/component-base/metrics/..."}, machinery...),
	},
	{
		packages: "pkg/storage/etcd/etcdclientlog",
		duty:     "Silences upstream's etcd clients on stderr. With more imports it would be initialized too late.",
		others:   []string{"go.etcd.io/etcd/client/pkg/v3/logutil"},
	},
	{
		packages: "pkg/storage/etcd/externaletcd",
		duty:     "Checks and clients of an etcd outside of the process.",
		others: append([]string{
			"github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus", "github.com/prometheus/client_golang/...",
			"go.etcd.io/etcd/...", "go.opentelemetry.io/...", "go.uber.org/zap/...", "google.golang.org/grpc/...",
			"k8s.io/apiserver/pkg/storage/storagebackend", "k8s.io/component-base/...",
		}, machinery...),
	},
	{
		packages: "pkg/storage/etcd/stores",
		duty:     "The connections to the etcd clusters of Stores, their probes, and the breaker that refuses requests.",
		ours:     []string{"pkg/apis/hosting/...", "pkg/storage/etcd/etcdkv", "pkg/storage/etcd/externaletcd", "pkg/storage/etcd/keys", "pkg/storage/layer/revision", "pkg/storage/etcd/usage", "pkg/observers"},
		others: append([]string{
			"golang.org/x/sync/semaphore", "go.etcd.io/etcd/...", "go.opentelemetry.io/otel/trace", "go.uber.org/zap", "google.golang.org/grpc/...", "k8s.io/apiserver/pkg/storage/...",
			"k8s.io/client-go/tools/cache", "k8s.io/component-base/metrics/...",
		}, apiTypes...),
	},
	{
		packages: "pkg/storage/layer/encryption",
		duty:     "Encryption at rest, and its configuration file.",
		ours:     []string{"pkg/configfile"},
		others:   append([]string{"k8s.io/apiserver/..."}, machinery...),
	},
	{
		packages: "pkg/storage/backup",
		duty:     "Backups: their format, writing them from an etcd and restoring them to one; never the server.",
		ours:     []string{"pkg/storage/etcd/keys", "pkg/storage/etcd/etcdkv"},
		others:   append([]string{"go.etcd.io/etcd/client/v3/...", "go.etcd.io/etcd/api/v3/...", "k8s.io/apiserver/pkg/storage/value"}, machinery...),
	},
	{
		packages: "pkg/storage/etcd/etcdkv",
		duty:     "Forwards the operations, streams and watches of an etcd client, for the layers over an etcd.",
		others:   []string{"go.etcd.io/etcd/api/v3/...", "go.etcd.io/etcd/client/v3", "google.golang.org/grpc"},
	},
	{
		packages: "pkg/storage/layer/freeze",
		duty:     "Stops all writes of a frozen resource and all requests of a closed one in its Store, at every replica.",
		ours:     []string{"pkg/storage/etcd/etcdkv", "pkg/storage/etcd/keys", "pkg/storage/layer/revision"},
		others:   append([]string{"go.etcd.io/etcd/api/v3/...", "go.etcd.io/etcd/client/v3/..."}, machinery...),
	},
	{
		packages: "pkg/storage/move",
		duty:     "Copies the objects of a resource from one Store or API server to another while they are served.",
		ours:     []string{"pkg/storage/etcd/etcdkv", "pkg/storage/layer/freeze", "pkg/storage/etcd/keys", "pkg/storage/layer/revision"},
		others:   append([]string{"go.etcd.io/etcd/client/v3/...", "go.etcd.io/etcd/api/v3/...", "golang.org/x/sync/errgroup", "golang.org/x/time/rate", "google.golang.org/grpc/metadata", "k8s.io/apiserver/pkg/storage/value", "k8s.io/client-go/util/workqueue"}, machinery...),
	},
	{
		packages: "pkg/storage/layer/limits",
		duty:     "Enforces the limits of a HostedResource, with any number of replicas.",
		ours:     []string{"pkg/apis/hosting/v1alpha1", "pkg/storage/etcd/etcdkv", "pkg/storage/etcd/keys", "pkg/storage/etcd/usage", "pkg/storage/layer/writeinfo"},
		others:   append([]string{"golang.org/x/sync/semaphore", "go.etcd.io/etcd/client/v3/...", "go.etcd.io/etcd/api/v3/...", "k8s.io/component-base/metrics/..."}, machinery...),
	},
	{
		packages: "pkg/storage/routing",
		duty:     "The Store of each resource and the storage stack in between; the only place that builds the storage of a resource.",
		ours:     []string{"pkg/apis/hosting/v1alpha1", "pkg/generated/...", "pkg/storage/..."},
		others:   append([]string{"go.etcd.io/etcd/client/v3/...", "go.etcd.io/etcd/api/v3/...", "google.golang.org/grpc/...", "k8s.io/apiserver/...", "k8s.io/component-base/metrics/..."}, clients...),
	},
	{
		packages: "pkg/storage/canonicaljson",
		duty:     "Reads and writes JSON in the form in which custom resources are stored.",
	},
	{
		packages: "pkg/storage/watchcache",
		duty:     "Watch caches of custom resources as the JSON that clients read, and of definitions as they are stored, within a budget of memory.",
		ours:     []string{"pkg/apis/hosting/v1alpha1", "pkg/observers", "pkg/stack", "pkg/storage/canonicaljson", "pkg/storage/layer/compression"},
		others: append([]string{
			"go.etcd.io/etcd/client/v3", "google.golang.org/grpc/metadata", "k8s.io/apiserver/...", "k8s.io/apiextensions-apiserver/...",
			"k8s.io/client-go/tools/cache", "k8s.io/client-go/util/workqueue", "k8s.io/component-base/metrics/...",
		}, apiTypes...),
	},
	{
		packages: "pkg/storage/layer/revision",
		duty:     "A view of an etcd client with revisions that are higher by a constant, and the key that stores it.",
		ours:     []string{"pkg/storage/etcd/etcdkv", "pkg/storage/etcd/keys"},
		others:   append([]string{"go.etcd.io/etcd/client/v3/...", "go.etcd.io/etcd/api/v3/...", "google.golang.org/protobuf/proto", "k8s.io/apiserver/pkg/storage/..."}, machinery...),
	},
	{
		packages: "pkg/storage/layer/corruption",
		duty:     "Counts unreadable objects, and names them in errors.",
		ours:     []string{"pkg/observers"},
		others: append([]string{
			"go.etcd.io/etcd/client/v3/...", "go.etcd.io/etcd/api/v3/...", "google.golang.org/grpc/...",
			"k8s.io/apiserver/...", "k8s.io/component-base/metrics/...",
		}, machinery...),
	},
	{
		packages: "pkg/storage/layer/objectsize",
		duty:     "Limits the size of objects, and concurrent writes of large ones.",
		ours:     []string{"pkg/storage/layer/writeinfo"},
		others: append([]string{
			"go.etcd.io/etcd/api/v3/...", "go.yaml.in/yaml/v2", "golang.org/x/sync/semaphore", "google.golang.org/grpc/...",
			"k8s.io/apiserver/pkg/authentication/...", "k8s.io/apiserver/pkg/endpoints/request",
			"k8s.io/apiserver/pkg/storage/...", "k8s.io/component-base/metrics/...",
		}, apiTypes...),
	},
	{
		packages: "pkg/storage/layer/compression",
		duty:     "Compression of objects before encryption, and its dictionaries.",
		ours:     []string{"pkg/storage/etcd/keys", "pkg/storage/etcd/etcdkv", "pkg/storage/layer/writeinfo"},
		others:   append([]string{"github.com/klauspost/compress/zstd", "golang.org/x/sync/semaphore", "go.etcd.io/etcd/api/v3/mvccpb", "go.etcd.io/etcd/client/v3", "k8s.io/apiserver/pkg/storage/value/..."}, machinery...),
	},
	{
		packages: "pkg/storage/layer/writeinfo",
		duty:     "Describes a write to all layers of the storage stack, in the context.",
		others:   append([]string{"k8s.io/apiserver/pkg/endpoints/request", "k8s.io/apiserver/pkg/storage"}, machinery...),
	},
	{
		packages: "pkg/storage/archive",
		duty:     "The files of objects that were archived before their deletion; writes and reads them.",
		others:   append([]string{"github.com/klauspost/compress/zstd"}, machinery...),
	},
	{
		packages: "pkg/standalone/authorization/rbac",
		duty:     "Authorization by roles and bindings; never the server.",
		others:   append([]string{"k8s.io/apiserver/pkg/authentication/...", "k8s.io/apiserver/pkg/authorization/..."}, clients...),
	},
	{
		packages: "pkg/registry/typed",
		duty:     "The REST storage and the strategies that compiled-in resources are made from.",
		ours:     []string{"pkg/apis/meta/validation", "pkg/apis/scheme", "pkg/table"},
		others:   append([]string{"k8s.io/apiserver/...", "sigs.k8s.io/structured-merge-diff/..."}, machinery...),
	},
	{
		packages: "pkg/registry/typed/typedtest",
		duty:     "A real etcd and checks for the tests of resources.",
		ours:     []string{"pkg/apis/scheme", "pkg/registry/typed", "pkg/table"},
		others:   append([]string{"github.com/google/go-cmp/cmp", "go.etcd.io/...", "k8s.io/apiserver/...", "sigs.k8s.io/structured-merge-diff/..."}, machinery...),
	},
	{
		packages: "pkg/registry/rbac/escalation",
		duty:     "Refuses roles and bindings that grant more rights than their writer has.",
		ours:     []string{"pkg/apis/rbac/validation", "pkg/standalone/authorization/rbac", "pkg/registry/typed"},
		others:   append([]string{"k8s.io/apiserver/...", "k8s.io/component-helpers/auth/rbac/validation"}, apiTypes...),
	},
	{
		packages: "pkg/registry/{group}",
		duty:     "The resources of a group, one per file: strategy, table and endpoints; no other group.",
		ours: []string{
			"pkg/apis/meta/validation", "pkg/apis/scheme", "pkg/apis/{group}/...", "pkg/registry/typed", "pkg/registry/{group}/...", "pkg/table",
			"pkg/standalone/authorization/rbac", "pkg/standalone/serviceaccount", "pkg/storage/backup", "pkg/storage/layer/objectsize",
		},
		others: append([]string{"k8s.io/apiserver/...", "sigs.k8s.io/structured-merge-diff/..."}, apiTypes...),
	},
	{
		packages: "pkg/injection",
		duty:     "Applies InjectionProfiles to objects, for admission and for the webhook, and compares them with definitions.",
		ours:     []string{"pkg/apis/hosting/..."},
		others: append([]string{
			"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/...", "k8s.io/apiextensions-apiserver/pkg/apiserver/validation", "k8s.io/apiserver/pkg/apis/cel",
		}, clients...),
	},
	{
		packages: "pkg/staticobjects",
		duty:     "Reads objects from a folder and a URL, and decides what becomes of their mirrors; no client.",
		ours:     []string{"pkg/apis/hosting/v1alpha1", "pkg/observers", "pkg/storage/layer/objectsize"},
		others: append([]string{
			"k8s.io/apiserver/pkg/util/filesystem", "k8s.io/client-go/util/cert", "k8s.io/component-base/metrics/...", "sigs.k8s.io/yaml",
		}, machinery...),
	},
	{
		packages: "pkg/admission/plugin/{name}",
		duty:     "An admission plugin.",
		ours:     []string{"pkg/admission/undecoded", "pkg/apis/hosting/...", "pkg/apis/meta/validation", "pkg/generated/informers/...", "pkg/injection"},
		others: append([]string{
			"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/...", "k8s.io/apiextensions-apiserver/pkg/apiserver/validation", "k8s.io/apiserver/...",
		}, clients...),
	},
	{
		packages: "pkg/admission/undecoded",
		duty:     "Passes custom resources to admission without decoding them.",
		others:   append([]string{"k8s.io/apiserver/pkg/admission"}, apiTypes...),
	},
	{
		packages: "pkg/admission",
		duty:     "The admission plugins, their order and which are enabled, and the shortest of them.",
		ours:     []string{"pkg/admission/...", "pkg/apis/hosting/v1alpha1", "pkg/configfile"},
		others:   append([]string{"k8s.io/apiserver/..."}, clients...),
	},
	{
		packages: "pkg/apiserver/requestbody",
		duty:     "Receives the bodies of requests, within limits.",
		ours:     []string{"pkg/admission/plugin/ownerreferences", "pkg/storage/layer/objectsize"},
		others:   append([]string{"gopkg.in/evanphx/json-patch.v4", "k8s.io/apiserver/...", "sigs.k8s.io/yaml"}, apiTypes...),
	},
	{
		packages: "pkg/apiserver/front",
		duty:     "What handlers in front of upstream's handler of custom resources share: requests, storage, scopes, the serializer.",
		ours:     []string{"pkg/storage/watchcache"},
		others:   append([]string{"k8s.io/apiserver/...", "k8s.io/apiextensions-apiserver/...", "sigs.k8s.io/yaml"}, clients...),
	},
	{
		packages: "pkg/apiserver/reads",
		duty:     "Serves reads of custom resources from the JSON in watch caches, in front of upstream's handler.",
		ours:     []string{"pkg/apiserver/front", "pkg/storage/watchcache"},
		others: append([]string{
			"github.com/klauspost/compress/gzip", "k8s.io/apiserver/...", "k8s.io/apiextensions-apiserver/...", "k8s.io/component-base/featuregate",
		}, clients...),
	},
	{
		packages: "pkg/apiserver/writes/plan",
		duty:     "Computes what upstream would store for a creation or an update of a custom resource, from JSON.",
		ours:     []string{"pkg/storage/canonicaljson"},
		others: append([]string{
			"k8s.io/apiextensions-apiserver/...", "k8s.io/apiserver/pkg/apis/cel", "k8s.io/apiserver/pkg/storage/names", "k8s.io/kube-openapi/pkg/validation/strfmt",
			"sigs.k8s.io/structured-merge-diff/v6/fieldpath",
		}, apiTypes...),
	},
	{
		packages: "pkg/apiserver/writes",
		duty:     "Serves writes of custom resources from plans, in front of upstream's handler.",
		ours:     []string{"pkg/admission/undecoded", "pkg/apiserver/front", "pkg/apiserver/writes/plan", "pkg/stack", "pkg/storage/watchcache"},
		others: append([]string{
			"k8s.io/apiserver/...", "k8s.io/apiextensions-apiserver/...", "k8s.io/component-base/featuregate", "k8s.io/component-base/metrics/...",
		}, clients...),
	},
	{
		packages: "pkg/apiserver/crd",
		duty:     "The informer of CRDs, which decodes their schemas when they are needed, their limits and their discovery.",
		ours:     []string{"pkg/storage/watchcache"},
		others:   append([]string{"k8s.io/apiserver/...", "k8s.io/apiextensions-apiserver/..."}, clients...),
	},
	{
		packages: "pkg/apiserver/crd/openapi",
		duty:     "Serves the OpenAPI documents of CRDs, built when they are requested.",
		ours:     []string{"pkg/storage/layer/compression", "pkg/version"},
		others: append([]string{
			"github.com/klauspost/compress/gzip", "google.golang.org/protobuf/encoding/protowire",
			"k8s.io/apiserver/...", "k8s.io/apiextensions-apiserver/...", "k8s.io/kube-openapi/...",
		}, clients...),
	},
	{
		packages: "pkg/apiserver",
		duty:     "The chain of servers; never a controller or a command.",
		ours: []string{
			"pkg/apis/...", "pkg/apiserver/...", "pkg/generated/openapi", "pkg/generated/clientset/...", "pkg/generated/informers/...",
			"pkg/registry/...", "pkg/stack", "pkg/standalone/serviceaccount", "pkg/storage/...", "pkg/version",
		},
		others: append([]string{
			"github.com/prometheus/client_golang/...", "github.com/prometheus/client_model/go", "go.etcd.io/etcd/client/v3/...",
			"k8s.io/apiserver/...", "k8s.io/apiextensions-apiserver/...", "k8s.io/kube-aggregator/...", "k8s.io/kube-openapi/...",
			"k8s.io/component-base/...",
		}, clients...),
	},
	{
		packages: "pkg/aggregated/maincluster",
		duty:     "The connection to the main cluster: clients, authentication and authorization.",
		ours:     []string{"pkg/apis/hosting/v1alpha1"},
		others:   append([]string{"go.opentelemetry.io/otel/trace", "k8s.io/apiserver/...", "k8s.io/component-base/metrics/...", "k8s.io/kube-aggregator/..."}, clients...),
	},
	{
		packages: "pkg/aggregated/mainadmission",
		duty:     "The main cluster's webhooks and policies that apply to annex's writes of a group, and annex's exemption from them.",
		ours:     []string{"pkg/apis/hosting/v1alpha1"},
		others:   append([]string{"k8s.io/apiserver/..."}, clients...),
	},
	{
		packages: "pkg/aggregated/maincopy",
		duty:     "The objects of a group that the main cluster stores: reads them, makes them equal to annex's, or deletes them.",
		ours:     []string{"pkg/aggregated/mainadmission", "pkg/apis/hosting/v1alpha1", "pkg/storage/move"},
		others:   append([]string{"golang.org/x/sync/...", "k8s.io/apiserver/pkg/storage"}, clients...),
	},
	{
		packages: "pkg/aggregated/group",
		duty:     "One state per API group, and the pure function that decides what becomes of it: no client, no clock.",
		ours:     []string{"pkg/apis/hosting/v1alpha1"},
		others:   append([]string{"k8s.io/apiextensions-apiserver/pkg/apihelpers"}, apiTypes...),
	},
	{
		packages: "pkg/aggregated/group/grouptest",
		duty:     "Objects of an API group, for tests.",
		ours:     []string{"pkg/apis/hosting/v1alpha1"},
		others:   append([]string{"k8s.io/apiextensions-apiserver/pkg/apihelpers"}, apiTypes...),
	},
	{
		packages: "pkg/aggregated/groupmove",
		duty:     "Runs Migrations of groups: decides what happens next, and records it.",
		ours: []string{
			"pkg/aggregated/group", "pkg/aggregated/mainadmission", "pkg/aggregated/maincopy", "pkg/apis/hosting/v1alpha1",
			"pkg/controller/migration/migrationstatus", "pkg/generated/clientset/...", "pkg/storage/move",
		},
		others: append([]string{"golang.org/x/sync/errgroup", "golang.org/x/time/rate", "k8s.io/component-base/...", "k8s.io/kube-aggregator/..."}, clients...),
	},
	{
		packages: "pkg/aggregated/discovery",
		duty:     "Filters OpenAPI and discovery documents for the main cluster's aggregator.",
		ours:     []string{"pkg/apis/hosting/v1alpha1"},
		others:   append([]string{"k8s.io/apiserver/...", "k8s.io/kube-openapi/..."}, clients...),
	},
	{
		packages: "pkg/authentication",
		duty:     "Authentication, in its order; behind a main cluster, of client certificates alone. Issues no tokens.",
		ours:     []string{"pkg/configfile"},
		others:   append([]string{"k8s.io/apiserver/...", "k8s.io/cluster-bootstrap/..."}, clients...),
	},
	{
		packages: "pkg/standalone/authorization",
		duty:     "Authorization in standalone mode: the authorizers, their order and configuration.",
		ours:     []string{"pkg/configfile"},
		others:   append([]string{"k8s.io/apiserver/..."}, clients...),
	},
	{
		packages: "pkg/serving",
		duty:     "The HTTPS server, which can move clients to other replicas without losing a request.",
		ours:     []string{"pkg/stack"},
		others:   append([]string{"golang.org/x/net/http2", "k8s.io/apiserver/pkg/server/..."}, machinery...),
	},
	{
		packages: "pkg/leader",
		duty:     "Leader election among replicas.",
		others:   append([]string{"github.com/spf13/pflag", "k8s.io/component-base/metrics/..."}, clients...),
	},
	{
		packages: "pkg/scheduler/framework",
		duty:     "The interfaces of scheduler plugins, and the decision from their results; no clients.",
		ours:     []string{"pkg/apis/hosting/v1alpha1"},
		others:   machinery,
	},
	{
		packages: "pkg/scheduler/plugins",
		duty:     "The filters and scores, one per file: pure functions.",
		ours:     []string{"pkg/apis/hosting/v1alpha1", "pkg/scheduler/framework", "pkg/storage/etcd/externaletcd"},
		others:   machinery,
	},
	{
		packages: "pkg/scheduler",
		duty:     "Places resources on Stores; a client of the API, without server, etcd and flags.",
		ours:     []string{"pkg/apis/hosting/v1alpha1", "pkg/controller/framework", "pkg/generated/...", "pkg/scheduler/..."},
		others:   append([]string{"k8s.io/component-base/metrics/..."}, clients...),
	},
	{
		packages: "pkg/controller/framework/...",
		duty:     "Helpers of controllers.",
		ours:     []string{"pkg/controller/framework/...", "pkg/apis/hosting/...", "pkg/generated/..."},
		others:   append([]string{"k8s.io/component-base/metrics"}, clients...),
	},
	{
		packages: "pkg/controller/store",
		duty:     "The controller of Stores: status, ownership of etcd clusters, and deletion.",
		ours:     []string{"pkg/apis/hosting/...", "pkg/generated/...", "pkg/controller/framework/...", "pkg/storage/etcd/stores"},
		others:   append([]string{"k8s.io/component-base/metrics/...", "go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/api/v3/..."}, clients...),
	},
	{
		packages: "pkg/controller/migration/migrationstatus",
		duty:     "Writes the status and the events of a Migration.",
		ours:     []string{"pkg/apis/hosting/...", "pkg/generated/...", "pkg/controller/framework", "pkg/storage/move"},
		others:   clients,
	},
	{
		packages: "pkg/controller/migration",
		duty:     "The controller of Migrations: decides the steps of a move, and reports them.",
		ours: []string{
			"pkg/apis/hosting/...", "pkg/generated/...", "pkg/controller/framework/...", "pkg/controller/migration/migrationstatus", "pkg/scheduler",
			"pkg/storage/move", "pkg/storage/etcd/stores",
		},
		others: append([]string{"go.etcd.io/etcd/api/v3/...", "golang.org/x/time/rate", "k8s.io/component-base/metrics/..."}, clients...),
	},
	{
		packages: "pkg/standalone/controller/flowcontrol",
		duty:     "The controller of flow control; the default objects are upstream's.",
		ours:     []string{"pkg/controller/framework/..."},
		others:   append([]string{"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"}, clients...),
	},
	{
		packages: "pkg/standalone/controller/rbac",
		duty:     "The default roles and bindings, and the controller of aggregated cluster roles.",
		ours:     []string{"pkg/apis/hosting/v1alpha1", "pkg/controller/framework/..."},
		others:   append([]string{"k8s.io/component-helpers/auth/rbac/reconciliation"}, clients...),
	},
	{
		packages: "pkg/controller/hostedresource",
		duty:     "The controller of HostedResources: creates them, and writes their status, usage, limits and unreadable objects included.",
		ours:     []string{"pkg/apis/hosting/...", "pkg/generated/...", "pkg/controller/framework/...", "pkg/storage/watchcache", "pkg/storage/layer/corruption", "pkg/storage/layer/limits", "pkg/storage/etcd/usage"},
		others:   append([]string{"k8s.io/component-base/metrics/..."}, clients...),
	},
	{
		packages: "pkg/controller/retention",
		duty:     "The controller of retentions: compares objects with rules, and archives and deletes those that are due.",
		ours:     []string{"pkg/apis/hosting/...", "pkg/generated/...", "pkg/controller/framework/...", "pkg/storage/archive"},
		others:   append([]string{"k8s.io/component-base/metrics/..."}, clients...),
	},
	{
		packages: "pkg/aggregated/group/controller",
		duty:     "The controller of groups: observes the state of each, and performs its plan.",
		ours:     []string{"pkg/aggregated/group", "pkg/apis/hosting/...", "pkg/generated/...", "pkg/controller/framework/..."},
		others:   append([]string{"k8s.io/component-base/metrics/..."}, clients...),
	},
	{
		packages: "pkg/standalone/controller/metadatainformers",
		duty:     "The informers of the metadata of all objects, for garbage collection and quotas.",
		ours:     []string{"pkg/controller/framework/..."},
		others:   clients,
	},
	{
		packages: "pkg/standalone/controller/{name}",
		duty:     "A controller of the Kubernetes kinds that a standalone annex serves; kube-controller-manager runs its counterpart in a main cluster.",
		ours:     []string{"pkg/standalone/controller/metadatainformers", "pkg/controller/framework/..."},
		others:   append([]string{"k8s.io/component-base/metrics/..."}, clients...),
	},
	{
		packages: "pkg/controller/staticobjects",
		duty:     "Writes the mirrors of static objects, and shows what became of them.",
		ours:     []string{"pkg/apis/hosting/...", "pkg/generated/...", "pkg/controller/framework/...", "pkg/staticobjects"},
		others:   append([]string{"k8s.io/component-base/metrics/..."}, clients...),
	},
	{
		packages: "pkg/controller",
		duty:     "Runs the controllers: lists those of both modes, and has the controller of InjectionProfiles; never one mode's own.",
		ours: []string{
			"pkg/controller/...", "pkg/apis/hosting/...", "pkg/generated/...", "pkg/injection", "pkg/scheduler", "pkg/staticobjects", "pkg/storage/watchcache",
			"pkg/storage/layer/corruption", "pkg/storage/move", "pkg/storage/etcd/stores", "pkg/storage/etcd/usage",
		},
		others: clients,
	},
	{
		packages: "pkg/standalone",
		duty:     "The list of the controllers that only a standalone annex has, and the small ones.",
		ours:     []string{"pkg/controller/...", "pkg/standalone/controller/...", "pkg/apis/hosting/...", "pkg/generated/..."},
		others:   append([]string{"k8s.io/apiserver/pkg/admission/plugin/policy/validating", "k8s.io/apiserver/pkg/cel/openapi/resolver", "k8s.io/cluster-bootstrap/..."}, clients...),
	},
	{
		packages: "pkg/aggregated",
		duty:     "The list of the controllers that only an annex behind a main cluster has.",
		ours: []string{
			"pkg/controller/...", "pkg/aggregated/group/...", "pkg/aggregated/groupmove", "pkg/aggregated/maincluster", "pkg/aggregated/maincopy",
			"pkg/apis/hosting/...", "pkg/staticobjects",
		},
		others: clients,
	},
	{
		packages: "pkg/cmd/server/options",
		duty:     "Flags of `annex serve`, one file per concern; never a controller.",
		ours:     []string{"pkg/admission/...", "pkg/apis/...", "pkg/apiserver/...", "pkg/authentication", "pkg/standalone/authorization", "pkg/configfile", "pkg/datadir", "pkg/generated/...", "pkg/leader", "pkg/aggregated/maincluster", "pkg/pki", "pkg/standalone/serviceaccount", "pkg/aggregated/servingca", "pkg/serving", "pkg/staticobjects", "pkg/storage/...", "pkg/version"},
		others: append([]string{
			"go.etcd.io/etcd/client/v3/...", "go.opentelemetry.io/otel/...", "k8s.io/apiserver/...", "k8s.io/apiextensions-apiserver/...", "k8s.io/kube-aggregator/...", "k8s.io/kube-openapi/...",
		}, append(flags, clients...)...),
	},
	{
		packages: "pkg/cmd/server",
		duty:     "`annex serve`: the only package that imports both the chain and the controllers; starts etcd first.",
		ours:     []string{"pkg/admission/...", "pkg/apis/...", "pkg/apiserver/...", "pkg/standalone", "pkg/standalone/authorization/rbac", "pkg/cmd/internal/output", "pkg/cmd/server/...", "pkg/controller", "pkg/datadir", "pkg/generated/...", "pkg/leader", "pkg/aggregated", "pkg/aggregated/discovery", "pkg/aggregated/maincluster", "pkg/pki", "pkg/aggregated/servingca", "pkg/serving", "pkg/staticobjects", "pkg/storage/...", "pkg/version"},
		others: append([]string{
			"go.etcd.io/etcd/client/v3/...", "go.opentelemetry.io/otel/trace", "k8s.io/apiserver/...", "k8s.io/apiextensions-apiserver/...", "k8s.io/kube-aggregator/...", "k8s.io/kube-openapi/...",
		}, append(flags, clients...)...),
	},
	{
		packages: "pkg/cmd/kubeconfig",
		duty:     "`annex kubeconfig`: signs with the CA in the data directory; never the server.",
		ours:     []string{"pkg/datadir", "pkg/pki"},
		others:   append([]string{"k8s.io/apiserver/pkg/authentication/..."}, append(flags, clients...)...),
	},
	{
		packages: "pkg/cmd/internal/login",
		duty:     "Flags and login of client commands, also to an etcd, and the metrics of a server.",
		ours:     []string{"pkg/apis/hosting/...", "pkg/generated/...", "pkg/storage/etcd/externaletcd", "pkg/version"},
		others: append([]string{
			"github.com/prometheus/client_model/go", "github.com/prometheus/common/...", "go.etcd.io/etcd/client/v3", "k8s.io/apiserver/pkg/storage/storagebackend",
		}, append(flags, clients...)...),
	},
	{
		packages: "pkg/cmd/injector",
		duty:     "`annex injector`: the webhook that injects InjectionProfiles; a client of annex or the main cluster.",
		ours:     []string{"pkg/cmd/internal/login", "pkg/generated/...", "pkg/injection"},
		others:   append([]string{"k8s.io/apiserver/pkg/authentication/...", "k8s.io/apiserver/pkg/server/dynamiccertificates"}, append(flags, clients...)...),
	},
	{
		packages: "pkg/cmd/backup",
		duty:     "`annex backup` and `annex restore`: clients of a running annex, and the offline restore into an unused etcd.",
		ours:     []string{"pkg/apis/hosting/...", "pkg/cmd/internal/login", "pkg/cmd/internal/output", "pkg/datadir", "pkg/generated/...", "pkg/table", "pkg/storage/backup", "pkg/storage/layer/compression", "pkg/storage/etcd/embeddedetcd", "pkg/storage/layer/revision"},
		others:   append([]string{"go.etcd.io/etcd/client/v3"}, append(flags, clients...)...),
	},
	{
		packages: "pkg/cmd/archive",
		duty:     "`annex archive`: reads archived objects without annex.",
		ours:     []string{"pkg/cmd/internal/output", "pkg/storage/archive", "pkg/table"},
		others:   append(flags, machinery...),
	},
	{
		packages: "pkg/cmd/decode",
		duty:     "`annex decode`: decodes a value of etcd without annex; reads only dictionaries.",
		ours:     []string{"pkg/cmd/internal/login", "pkg/datadir", "pkg/storage/layer/compression", "pkg/storage/etcd/externaletcd", "pkg/storage/etcd/keys"},
		others:   append([]string{"go.etcd.io/etcd/client/v3", "k8s.io/apiserver/pkg/storage/storagebackend"}, append(flags, machinery...)...),
	},
	{
		packages: "artifacts/deploy",
		duty:     "The manifests, also for programs; no code.",
	},
	{
		packages: "pkg/cmd/internal/output",
		duty:     "What commands print: tables, JSON, progress bars, and Migrations until they end.",
		ours:     []string{"pkg/apis/hosting/...", "pkg/generated/clientset/...", "pkg/table"},
		others:   append([]string{"github.com/spf13/pflag", "golang.org/x/term", "sigs.k8s.io/yaml"}, clients...),
	},
	{
		packages: "pkg/cmd/scheduler",
		duty:     "`annex scheduler`: a client of annex that chooses Stores; never the server.",
		ours:     []string{"pkg/apis/hosting/...", "pkg/cmd/internal/login", "pkg/generated/...", "pkg/leader", "pkg/scheduler/..."},
		others:   append(flags, clients...),
	},
	{
		packages: "pkg/cmd/place",
		duty:     "`annex place`, `annex drain` and `annex rebalance`: clients of annex that show and change the Stores of resources.",
		ours:     []string{"pkg/apis/hosting/...", "pkg/cmd/internal/login", "pkg/cmd/internal/output", "pkg/generated/clientset/...", "pkg/scheduler/..."},
		others:   append(flags, clients...),
	},
	{
		packages: "pkg/cmd/internal/footprint",
		duty:     "What annex has written to a main cluster and its rights there, for commands that work without annex too; read-only.",
		ours:     []string{"pkg/aggregated/mainadmission", "pkg/apis/hosting/..."},
		others:   append([]string{"k8s.io/component-helpers/auth/rbac/validation"}, clients...),
	},
	{
		packages: "pkg/cmd/internal/health",
		duty:     "What `annex status` and `annex doctor` check of annex and its main cluster; read-only.",
		ours:     []string{"artifacts/deploy", "pkg/admission", "pkg/apis/hosting/...", "pkg/cmd/internal/footprint", "pkg/cmd/internal/login", "pkg/generated/clientset/...", "pkg/aggregated/maincluster", "pkg/pki", "pkg/aggregated/servingca", "pkg/scheduler", "pkg/table", "pkg/version"},
		others:   append([]string{"k8s.io/component-helpers/auth/rbac/validation", "github.com/prometheus/client_model/go"}, clients...),
	},
	{
		packages: "pkg/cmd/doctor",
		duty:     "`annex doctor`: a read-only client of the main cluster that reports faults; never the server.",
		ours:     []string{"pkg/cmd/internal/health", "pkg/cmd/internal/login", "pkg/cmd/internal/output"},
		others:   flags,
	},
	{
		packages: "pkg/cmd/diagnose",
		duty:     "`annex diagnose`: a read-only client of a cluster without annex.",
		ours:     []string{"pkg/aggregated/group", "pkg/apis/hosting/...", "pkg/cmd/internal/login", "pkg/cmd/internal/output", "pkg/table", "pkg/version"},
		others:   append([]string{"github.com/prometheus/client_model/go"}, append(flags, clients...)...),
	},
	{
		packages: "pkg/cmd/move",
		duty:     "`annex move`, `annex rollback`, `annex finalize` and `annex uninstall`: clients of a main cluster that prepare, create and present Migrations of groups.",
		ours:     []string{"pkg/aggregated/mainadmission", "pkg/aggregated/maincluster", "pkg/aggregated/maincopy", "pkg/aggregated/servingca", "pkg/apis/hosting/...", "pkg/cmd/backup", "pkg/cmd/diagnose", "pkg/cmd/internal/footprint", "pkg/cmd/internal/login", "pkg/cmd/internal/output", "pkg/generated/...", "pkg/table", "pkg/scheduler/..."},
		others:   append([]string{"k8s.io/component-helpers/auth/rbac/...", "sigs.k8s.io/yaml"}, append(flags, clients...)...),
	},
	{
		packages: "pkg/cmd/status",
		duty:     "`annex status` and `annex top`: read-only clients of annex; never the server.",
		ours:     []string{"pkg/apis/hosting/...", "pkg/cmd/internal/health", "pkg/cmd/internal/login", "pkg/cmd/internal/output", "pkg/table"},
		others:   append([]string{"github.com/prometheus/client_model/go"}, append(flags, clients...)...),
	},
	{
		packages: "pkg/cmd",
		duty:     "The root command.",
		ours:     []string{"pkg/cmd/...", "pkg/version"},
		others:   append(flags, machinery...),
	},
	{
		packages: ".",
		duty:     "main: run the root command.",
		ours:     []string{"pkg/cmd"},
		others:   []string{"k8s.io/component-base/cli"},
	},
	{
		packages: "pkg/test/testserver",
		duty:     "Starts the whole chain inside a test, with the real flags.",
		ours:     []string{"pkg/cmd/...", "pkg/apis/...", "pkg/generated/...", "pkg/apiserver/..."},
		others:   append(flags, clients...),
	},
	{
		packages: "pkg/test/maincluster",
		duty:     "A real main cluster on loopback, for any aggregated API server; independent of annex.",
		ours:     []string{"pkg/storage/etcd/embeddedetcd", "pkg/test/freeport"},
		others:   append([]string{"go.etcd.io/etcd/client/v3"}, clients...),
	},
	{
		packages: "pkg/test/freeport",
		duty:     "Chooses ports for programs that need theirs before they listen.",
	},
	{
		packages: "pkg/test/random",
		duty:     "Seed and duration of tests that do random things.",
	},
	{
		packages: "pkg/test/faultproxy",
		duty:     "A proxy with which tests cut, delay and redirect connections to a server.",
	},
	{
		packages: "pkg/test/etcdcluster",
		duty:     "An external etcd cluster whose members can be killed, cut off and slowed down; independent of annex.",
		ours:     []string{"pkg/test/expect", "pkg/test/faultproxy", "pkg/test/poll"},
		others:   []string{"go.etcd.io/etcd/...", "go.uber.org/zap"},
	},
	{
		packages: "pkg/test/annextest",
		duty:     "annex behind such a cluster, with the permissions of its manifests.",
		ours:     []string{"pkg/generated/...", "pkg/test/clients", "pkg/test/expect", "pkg/test/maincluster", "pkg/test/process", "pkg/test/testserver", "pkg/version", "pkg/apis/hosting/..."},
		others:   clients,
	},

	{
		packages: "pkg/test/upstream/testing",
		duty:     "Starts annex as a process for upstream's tests, in place of upstream's server.",
		ours:     []string{"pkg/test/faultproxy", "pkg/test/process"},
		others: append([]string{
			"k8s.io/apiextensions-apiserver/pkg/apiserver", "k8s.io/apiextensions-apiserver/pkg/cmd/server/options",
			"k8s.io/apiserver/pkg/server", "k8s.io/apiserver/pkg/storage/storagebackend", "k8s.io/apiserver/pkg/util/...", "k8s.io/client-go/rest",
		}, flags...),
	},
	{
		packages: "pkg/test/...",
		duty:     "Test suites and their helpers; the end-to-end suites use processes, not packages of the server.",
		ours:     []string{"pkg/test/...", "pkg/apis/...", "pkg/generated/...", "pkg/storage/layer/compression", "pkg/storage/etcd/embeddedetcd"},
		others:   append([]string{"k8s.io/apiextensions-apiserver/...", "github.com/google/go-cmp/cmp", "github.com/prometheus/client_golang/prometheus/testutil/promlint", "sigs.k8s.io/yaml"}, clients...),
	},
	{
		packages: "hack/demo",
		duty:     "What `make main-cluster` and `make demo` run: a tour of what a user could do by hand.",
		ours:     []string{"pkg/test/annextest", "pkg/test/clients", "pkg/test/crds", "pkg/test/maincluster", "pkg/test/process"},
		others:   append([]string{"go.etcd.io/etcd/client/v3", "go.uber.org/zap", "golang.org/x/sync/errgroup"}, clients...),
	}, {
		packages: "hack/testrun",
		duty:     "Runs levels of tests, and summarizes what they print.",
		ours:     []string{"pkg/test/random"},
	}, {
		packages: "hack/reference",
		duty:     "Prints docs/reference-commands.md from the commands.",
		ours:     []string{"pkg/cmd"},
		others:   []string{"github.com/spf13/cobra", "github.com/spf13/pflag"},
	}, {
		packages: "hack/chart",
		duty:     "Generates the Helm chart from the manifests.",
		others:   []string{"go.yaml.in/yaml/v3"},
	}, {
		packages: "hack/...",
		duty:     "Programs for development, never part of annex.",
		ours:     []string{"pkg/apis/...", "pkg/generated/openapi"},
		others:   append([]string{"k8s.io/kube-openapi/..."}, apiTypes...),
	},
}

// neverImported are modules that no package may import, tests included.
var neverImported = map[string]string{
	"k8s.io/kubernetes/...":              "annex is built from the staging modules only",
	"github.com/stretchr/testify/...":    "tests use the standard testing package and go-cmp",
	"github.com/onsi/...":                "tests use the standard testing package and go-cmp",
	"gotest.tools/...":                   "tests use the standard testing package and go-cmp",
	"github.com/pkg/errors":              "errors are wrapped with %w",
	"k8s.io/utils/pointer":               "it is deprecated: use k8s.io/utils/ptr",
	"sigs.k8s.io/controller-runtime/...": "controllers are written on client-go",
}
