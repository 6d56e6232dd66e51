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

	"github.com/annex-dev/annex/pkg/apis/hosting"
)

// Reasons why a Store is not ready, as its condition Ready gives them.
const (
	// ReasonConnecting is a Store that was not looked at yet.
	ReasonConnecting = "Connecting"
	// ReasonNotFound is a Store that does not exist.
	ReasonNotFound = "NotFound"
	// ReasonUnreachable is a Store of which no endpoint answers.
	ReasonUnreachable = "Unreachable"
	// ReasonNoQuorum is a Store whose members answer, but not as a cluster.
	ReasonNoQuorum = "NoQuorum"
	// ReasonTooOld is a Store with a member that annex cannot rely on.
	ReasonTooOld = "TooOld"
	// ReasonCorrupt is a Store whose members found that their data differ.
	ReasonCorrupt = "Corrupt"
	// ReasonWrongCluster is a Store whose endpoints lead to another etcd cluster
	// than the one it was first reached at.
	ReasonWrongCluster = "WrongCluster"
	// ReasonDataReplaced is a Store whose cluster does not have annex's mark, or has it
	// with another epoch.
	ReasonDataReplaced = "DataReplaced"
	// ReasonRolledBack is a Store whose cluster is at an earlier revision than it was.
	ReasonRolledBack = "RolledBack"
	// ReasonDiverged is a Store whose cluster has the mark, but not the history that
	// annex knows.
	ReasonDiverged = "Diverged"
	// ReasonNewerFormat is a Store whose data are those of a newer release of annex.
	ReasonNewerFormat = "NewerFormat"
	// ReasonNotEmpty is a Store whose prefix has keys that are not annex's.
	ReasonNotEmpty = "NotEmpty"
	// ReasonInUse is a Store whose cluster and prefix belong to another Store.
	ReasonInUse = "InUse"
	// ReasonUnclaimed is a Store that was reached, but is not known to be annex's yet.
	ReasonUnclaimed = "Unclaimed"
	// ReasonBadCredentials is a Store whose Secret cannot be read or used.
	ReasonBadCredentials = "BadCredentials"
	// ReasonCertificateExpired is a Store whose client certificate expired, and of
	// which no endpoint answers.
	ReasonCertificateExpired = "CertificateExpired"
	// ReasonNoSpace is a Store that refuses writes because it is full.
	ReasonNoSpace = "NoSpace"
	// ReasonFailed is a request that etcd failed to answer.
	ReasonFailed = "Failed"
)

// UnavailableError says that a Store does not serve now. The API server answers it
// with 503.
type UnavailableError struct {
	// Store is the name of the Store.
	Store string
	// Reason is one word.
	Reason string
	// Message is for people.
	Message string
	// Cause is the error of etcd, if one was met by the request itself.
	Cause error
}

// Error implements error. What does not end by itself it says where to read on about.
func (e *UnavailableError) Error() string {
	next := ""
	if e.isOtherData() {
		next = fmt.Sprintf(" (`kubectl describe store %s` has the next step)", e.Store)
	}
	return fmt.Sprintf("store %q is not available: %s%s", e.Store, e.Message, next)
}

// isOtherData reports whether an etcd does not have the data of its Store.
func (e *UnavailableError) isOtherData() bool {
	switch e.Reason {
	case ReasonWrongCluster, ReasonDataReplaced, ReasonRolledBack, ReasonDiverged:
		return true
	}
	return false
}

// Unwrap returns the error of etcd.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// Status implements apierrors.APIStatus. It does not say when to ask again: clients
// would do so in silence for a while, and a write may have been done.
func (e *UnavailableError) Status() metav1.Status {
	return storeStatus(e.Store, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, e.Error())
}

// reasonStoreFull is the reason of a 507; Kubernetes has no name for it.
const reasonStoreFull metav1.StatusReason = "StoreFull"

// NoSpaceError says that a Store is full: it refuses writes, while reads and deletes
// go on. The API server answers it with 507.
type NoSpaceError struct {
	// Store is the name of the Store.
	Store string
	// Cause is the error of etcd.
	Cause error
}

// Error implements error.
func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("store %q is out of space: it takes no writes until objects are deleted or its quota is raised; reads and deletes go on", e.Store)
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
		Details: &metav1.StatusDetails{Group: hosting.GroupName, Kind: "stores", Name: store},
	}
}

// asStoreError says in whose name etcd failed, where it did: it leaves answers that are
// about the request, such as that a revision was compacted, as they are.
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

// codeOf is the gRPC code of an error that etcd's client returned.
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
