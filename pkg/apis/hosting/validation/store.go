// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

var endpointSchemes = []string{"http", "https", "unix"}

// ValidateStore checks a new Store.
func ValidateStore(store *hostingv1alpha1.Store) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&store.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if store.Spec.Embedded != nil && store.Spec.Etcd == nil && store.Name != hostingv1alpha1.DefaultStoreName {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "embedded"),
			fmt.Sprintf("the etcd inside annex is the Store %q: set `etcd.endpoints`", hostingv1alpha1.DefaultStoreName)))
	}
	errs = append(errs, validateStoreSpec(&store.Spec, field.NewPath("spec"))...)
	if etcd := store.Spec.Etcd; etcd != nil {
		etcdPath := field.NewPath("spec", "etcd")
		errs = append(errs, validateEtcdStore(etcd, etcdPath)...)
		errs = append(errs, validateKeyPrefix(etcd.KeyPrefix, etcdPath.Child("keyPrefix"))...)
	}
	return errs
}

// ValidateStoreUpdate checks an update of a Store's spec and metadata. An unchanged etcd
// is not validated again, so that the Store can be deleted.
func ValidateStoreUpdate(newStore, oldStore *hostingv1alpha1.Store) field.ErrorList {
	specPath := field.NewPath("spec")
	errs := validateStoreSpec(&newStore.Spec, specPath)
	if etcd := newStore.Spec.Etcd; etcd != nil && !equality.Semantic.DeepEqual(etcd, oldStore.Spec.Etcd) {
		errs = append(errs, validateEtcdStore(etcd, specPath.Child("etcd"))...)
	}
	return append(errs, validateStoreKeepsItsPlace(&newStore.Spec, &oldStore.Spec, specPath)...)
}

// ValidateStoreStatusUpdate checks an update of a Store's status.
func ValidateStoreStatusUpdate(newStore, oldStore *hostingv1alpha1.Store) field.ErrorList {
	statusPath := field.NewPath("status")
	status := &newStore.Status
	errs := metav1validation.ValidateConditions(status.Conditions, statusPath.Child("conditions"))
	errs = append(errs, validateNonNegativeQuantity(status.DatabaseSize, statusPath.Child("size"))...)
	errs = append(errs, validateNonNegativeQuantity(status.SizeInUse, statusPath.Child("sizeInUse"))...)
	errs = append(errs, validateNonNegativeQuantity(status.Quota, statusPath.Child("quota"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(status.Objects, statusPath.Child("objects"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(status.Resources), statusPath.Child("resources"))...)
	errs = append(errs, validateClusterID(newStore, oldStore, statusPath.Child("clusterID"))...)
	errs = append(errs, validateHistory(status.History, statusPath.Child("history"))...)
	return append(errs, validateMembers(status.Members, statusPath.Child("members"))...)
}

// validateClusterID makes the cluster ID immutable: another cluster has different data.
// Exceptions are the Store "default", whose cluster is set by flags, and adoption.
func validateClusterID(newStore, oldStore *hostingv1alpha1.Store, idPath *field.Path) field.ErrorList {
	newID, oldID := newStore.Status.ClusterID, oldStore.Status.ClusterID
	if newID == oldID {
		return nil
	}
	if _, err := strconv.ParseUint(newID, 16, 64); err != nil && newID != "" {
		return field.ErrorList{field.Invalid(idPath, newID, "must be a hexadecimal number of at most 64 bits")}
	}
	if oldID == "" || newStore.Name == hostingv1alpha1.DefaultStoreName || newID != "" && oldStore.Annotations[hostingv1alpha1.AdoptClusterAnnotation] == newID {
		return nil
	}
	return apivalidation.ValidateImmutableField(newID, oldID, idPath)
}

func validateHistory(history *hostingv1alpha1.StoreHistory, historyPath *field.Path) field.ErrorList {
	if history == nil {
		return nil
	}
	var errs field.ErrorList
	if history.Epoch == "" {
		errs = append(errs, field.Required(historyPath.Child("epoch"), ""))
	}
	errs = append(errs, apivalidation.ValidateNonnegativeField(history.Revision, historyPath.Child("revision"))...)
	return append(errs, apivalidation.ValidateNonnegativeField(history.CheckpointRevision, historyPath.Child("checkpointRevision"))...)
}

var defragmentations = []hostingv1alpha1.Defragmentation{hostingv1alpha1.DefragmentationNever, hostingv1alpha1.DefragmentationWhenFull}

func validateStoreSpec(spec *hostingv1alpha1.StoreSpec, specPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case spec.Embedded == nil && spec.Etcd == nil:
		errs = append(errs, field.Required(specPath, "exactly one of `embedded` and `etcd` must be set"))
	case spec.Embedded != nil && spec.Etcd != nil:
		errs = append(errs, field.Forbidden(specPath.Child("etcd"), "may not be set together with `embedded`"))
	}
	errs = append(errs, validateResourceList(spec.Capacity, specPath.Child("capacity"))...)
	return append(errs, validateTaints(spec.Taints, specPath.Child("taints"))...)
}

// validateStoreKeepsItsPlace rejects changes after which annex would use different data.
func validateStoreKeepsItsPlace(newSpec, oldSpec *hostingv1alpha1.StoreSpec, specPath *field.Path) field.ErrorList {
	if (newSpec.Embedded == nil) != (oldSpec.Embedded == nil) {
		return field.ErrorList{field.Forbidden(specPath, "may not change between `embedded` and `etcd`: the objects would not follow")}
	}
	if newSpec.Etcd == nil || oldSpec.Etcd == nil {
		return nil
	}
	return apivalidation.ValidateImmutableField(newSpec.Etcd.KeyPrefix, oldSpec.Etcd.KeyPrefix, specPath.Child("etcd", "keyPrefix"))
}

func validateEtcdStore(etcd *hostingv1alpha1.EtcdStore, etcdPath *field.Path) field.ErrorList {
	errs := validateEndpoints(etcd.Endpoints, etcdPath.Child("endpoints"))
	if etcd.TLS != nil {
		errs = append(errs, validateSecretReference(&etcd.TLS.SecretRef, etcdPath.Child("tls", "secretRef"))...)
	}
	if etcd.Defragmentation != "" && !slices.Contains(defragmentations, etcd.Defragmentation) {
		errs = append(errs, field.NotSupported(etcdPath.Child("defragmentation"), etcd.Defragmentation, defragmentations))
	}
	return errs
}

// validateKeyPrefix rejects the whole key space of an etcd: keys of other programs would
// be taken for objects.
func validateKeyPrefix(prefix string, prefixPath *field.Path) field.ErrorList {
	switch {
	case prefix == "":
		return field.ErrorList{field.Required(prefixPath, "")}
	case !strings.HasPrefix(prefix, "/"):
		return field.ErrorList{field.Invalid(prefixPath, prefix, "must begin with a slash")}
	case prefix == "/":
		return field.ErrorList{field.Invalid(prefixPath, prefix, "must have at least one segment, such as /annex")}
	case path.Clean(prefix) != prefix:
		return field.ErrorList{field.Invalid(prefixPath, prefix, "must not end with a slash, nor have empty, `.` or `..` segments")}
	}
	return nil
}

func validateEndpoints(endpoints []string, endpointsPath *field.Path) field.ErrorList {
	if len(endpoints) == 0 {
		return field.ErrorList{field.Required(endpointsPath, "at least one endpoint is needed")}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, endpoint := range endpoints {
		if seen.Has(endpoint) {
			errs = append(errs, field.Duplicate(endpointsPath.Index(i), endpoint))
			continue
		}
		seen.Insert(endpoint)
		errs = append(errs, validateEndpoint(endpoint, endpointsPath.Index(i))...)
	}
	return errs
}

// validateEndpoint accepts one spelling of each endpoint, so that endpoints can be
// compared and etcd's client parses them in the same way.
func validateEndpoint(endpoint string, endpointPath *field.Path) field.ErrorList {
	invalid := func(detail string) field.ErrorList {
		return field.ErrorList{field.Invalid(endpointPath, endpoint, detail)}
	}
	parsed, err := url.Parse(endpoint)
	if err != nil {
		return invalid("must be a URL such as https://10.0.0.1:2379")
	}
	if parsed.User != nil {
		// The value is omitted from the error: it may contain a password.
		return field.ErrorList{field.Forbidden(endpointPath, "may not hold a user name or password")}
	}
	switch parsed.Scheme {
	case "http", "https":
		if parsed.Hostname() == "" || parsed.Port() == "" {
			return invalid("must have a host and a port")
		}
		if endpoint != parsed.Scheme+"://"+net.JoinHostPort(parsed.Hostname(), parsed.Port()) {
			return invalid("must have nothing but a scheme in lower case, a host and a port")
		}
		if !isHost(parsed.Hostname()) {
			return invalid("must have an IP address in its shortest form or a DNS name in lower case as host")
		}
	case "unix":
		if endpoint != "unix://"+path.Clean(parsed.Path) || !path.IsAbs(parsed.Path) {
			return invalid("must be of the form unix:///path/of/socket, without empty, `.` or `..` segments")
		}
	default:
		return field.ErrorList{field.NotSupported(endpointPath.Key("scheme"), parsed.Scheme, endpointSchemes)}
	}
	return nil
}

// isHost reports whether a host has the accepted spelling. gRPC would parse unix:1 as a
// socket.
func isHost(host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.String() == host
	}
	return host != "unix" && len(validation.IsDNS1123Subdomain(host)) == 0
}

func validateSecretReference(reference *hostingv1alpha1.SecretReference, referencePath *field.Path) field.ErrorList {
	errs := metavalidation.ValidateRequiredName(reference.Namespace, apivalidation.ValidateNamespaceName, referencePath.Child("namespace"))
	return append(errs, metavalidation.ValidateRequiredName(reference.Name, apivalidation.NameIsDNSSubdomain, referencePath.Child("name"))...)
}

func validateMembers(members []hostingv1alpha1.StoreMember, membersPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, member := range members {
		idPath := membersPath.Index(i).Child("id")
		switch {
		case member.ID == "":
			errs = append(errs, field.Required(idPath, ""))
		case seen.Has(member.ID):
			errs = append(errs, field.Duplicate(idPath, member.ID))
		}
		seen.Insert(member.ID)
	}
	return errs
}
