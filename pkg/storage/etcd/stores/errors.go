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
	// ReasonConnecting is a Store before its first probe.
	ReasonConnecting = "Connecting"
	// ReasonNotFound is a Store that does not exist.
	ReasonNotFound = "NotFound"
	// ReasonUnreachable is a Store without an endpoint that answers.
	ReasonUnreachable = "Unreachable"
	// ReasonNoQuorum is a Store whose members answer, but not as a cluster.
	ReasonNoQuorum = "NoQuorum"
	// ReasonTooOld is a Store with a member of an unsupported version.
	ReasonTooOld = "TooOld"
	// ReasonNotEtcd is a Store whose server only imitates a part of etcd.
	ReasonNotEtcd = "NotEtcd"
	// ReasonCorrupt is a Store whose members found that their data differ.
	ReasonCorrupt = "Corrupt"
	// ReasonWrongCluster is a Store whose endpoints lead to another etcd cluster than before.
	ReasonWrongCluster = "WrongCluster"
	// ReasonDataReplaced is a Store whose cluster has no mark of annex, or one of another epoch.
	ReasonDataReplaced = "DataReplaced"
	// ReasonRolledBack is a Store whose cluster is at an earlier revision than before.
	ReasonRolledBack = "RolledBack"
	// ReasonDiverged is a Store whose cluster has the mark, but not the history that annex
	// knows.
	ReasonDiverged = "Diverged"
	// ReasonNewerFormat is a Store whose data were written by a newer release of annex.
	ReasonNewerFormat = "NewerFormat"
	// ReasonNotEmpty is a Store whose prefix has keys that are not annex's.
	ReasonNotEmpty = "NotEmpty"
	// ReasonInUse is a Store whose cluster and prefix belong to another Store.
	ReasonInUse = "InUse"
	// ReasonUnclaimed is a Store that was reached, but is not claimed yet.
	ReasonUnclaimed = "Unclaimed"
	// ReasonBadCredentials is a Store whose Secret cannot be read or used.
	ReasonBadCredentials = "BadCredentials"
	// ReasonCertificateExpired is a Store whose client certificate has expired, without an
	// endpoint that answers.
	ReasonCertificateExpired = "CertificateExpired"
	// ReasonNoSpace is a Store that refuses writes because it is full.
	ReasonNoSpace = "NoSpace"
	// ReasonFailed is a request that etcd failed to answer.
	ReasonFailed = "Failed"
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
