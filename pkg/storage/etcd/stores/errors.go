// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Reasons of the condition Ready of a Store.
const (
	ReasonConnecting         = "Connecting"         // it was not probed yet
	ReasonNotFound           = "NotFound"           // it does not exist
	ReasonUnreachable        = "Unreachable"        // no endpoint answers
	ReasonNoQuorum           = "NoQuorum"           // its members answer, but not as a cluster
	ReasonTooOld             = "TooOld"             // a member has an unsupported version
	ReasonNotEtcd            = "NotEtcd"            // its server only imitates a part of etcd
	ReasonCorrupt            = "Corrupt"            // its members found that their data differ
	ReasonWrongCluster       = "WrongCluster"       // its endpoints lead to another etcd cluster than before
	ReasonDataReplaced       = "DataReplaced"       // its cluster has no mark of annex, or one of another epoch
	ReasonRolledBack         = "RolledBack"         // its cluster is at an earlier revision than before
	ReasonDiverged           = "Diverged"           // its cluster has the mark, but not the history that annex knows
	ReasonNewerFormat        = "NewerFormat"        // a newer release of annex wrote its data
	ReasonNotEmpty           = "NotEmpty"           // its prefix has keys that are not annex's
	ReasonInUse              = "InUse"              // its cluster and prefix belong to another Store
	ReasonUnclaimed          = "Unclaimed"          // it was reached, but is not claimed yet
	ReasonBadCredentials     = "BadCredentials"     // its Secret cannot be read or used
	ReasonCertificateExpired = "CertificateExpired" // its client certificate has expired, and no endpoint answers
	ReasonNoSpace            = "NoSpace"            // it is full, and refuses writes
	ReasonFailed             = "Failed"             // etcd failed to answer a request
)

// UnavailableError is the error of requests to an unavailable Store. The API server answers 503.
type UnavailableError struct {
	// Store is the name of the Store.
	Store string
	// Reason is one of the reasons above.
	Reason string
	// Message is the explanation.
	Message string
	// Cause is the error of etcd, if the request got one.
	Cause error
}

// Error implements error. It names the next step where waiting does not help.
func (e *UnavailableError) Error() string {
	next := ""
	if e.isOtherData() {
		next = fmt.Sprintf(" (`kubectl describe store %s` has the next step)", e.Store)
	}
	return fmt.Sprintf("store %q is not available: %s%s", e.Store, e.Message, next)
}

// isOtherData reports whether the etcd does not have the data of its Store.
func (e *UnavailableError) isOtherData() bool {
	switch e.Reason {
	case ReasonWrongCluster, ReasonDataReplaced, ReasonRolledBack, ReasonDiverged:
		return true
	}
	return false
}

// Unwrap returns the error of etcd.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// Status implements apierrors.APIStatus. It has no Retry-After: clients would retry silently for
// a while, and a write may have been done.
func (e *UnavailableError) Status() metav1.Status {
	return storeStatus(e.Store, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, e.Error())
}

// reasonStoreFull is the reason of a 507, for which Kubernetes has no name.
const reasonStoreFull metav1.StatusReason = "StoreFull"

// NoSpaceError is the error of writes to a full Store, which still serves reads and deletes. The
// API server answers 507.
type NoSpaceError struct {
	// Store is the name of the Store.
	Store string
	// Cause is the error of etcd, or that the volume is almost full.
	Cause error
}

// Error implements error.
func (e *NoSpaceError) Error() string {
	if errors.Is(e.Cause, errLowDisk) {
		return fmt.Sprintf("store %q takes no writes, because %v; reads and deletes still work", e.Store, errLowDisk)
	}
	return fmt.Sprintf("store %q is out of space: it takes no writes until objects are deleted or its quota is raised; reads and deletes still work", e.Store)
}

// Unwrap returns the error of etcd.
func (e *NoSpaceError) Unwrap() error { return e.Cause }

// Status implements apierrors.APIStatus.
func (e *NoSpaceError) Status() metav1.Status {
	return storeStatus(e.Store, http.StatusInsufficientStorage, reasonStoreFull, e.Error())
}

func storeStatus(store string, code int32, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
		Details: &metav1.StatusDetails{Group: hostingv1alpha1.GroupName, Kind: "stores", Name: store},
	}
}

// asStoreError adds the name of the Store to errors of etcd. Errors about the request, such as a
// compacted revision, stay as they are.
func asStoreError(store string, err error) error {
	var known *UnavailableError
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.Is(err, rpctypes.ErrNoSpace):
		return &NoSpaceError{Store: store, Cause: err}
	case codeOf(err) == codes.Unavailable:
		return &UnavailableError{Store: store, Reason: ReasonFailed, Message: err.Error(), Cause: err}
	}
	return err
}

// codeOf returns the gRPC code of an error of etcd's client.
func codeOf(err error) codes.Code {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return codes.Unknown
	}
	var etcdErr rpctypes.EtcdError
	if errors.As(err, &etcdErr) {
		return etcdErr.Code()
	}
	return status.Code(err)
}
