// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/externaletcd"
)

const (
	// probeTimeout bounds a probe of an etcd, and embeddedProbeTimeout a probe of the one inside the
	// process.
	probeTimeout         = 4 * time.Second
	embeddedProbeTimeout = time.Minute
	// After dialCheckDelay without an answer, annex checks whether the endpoints accept connections, for at
	// most explainTimeout.
	dialCheckDelay = 500 * time.Millisecond
	explainTimeout = 2 * time.Second
	// secretInterval is the time between reads of a Secret while the Store is available.
	secretInterval = 30 * time.Second
	// An available Store becomes unavailable after failureThreshold failed probes in a row: a cluster
	// that elects a leader may miss one. slowFailureThreshold is for endpoints that accept connections,
	// and for the etcd inside the process: a busy machine may be the cause.
	failureThreshold     = 2
	slowFailureThreshold = 6
)

// probeState is kept from one probe to the next.
type probeState struct {
	connection  *connection
	credentials *credentials
	secret      secretRef
	secretRead  time.Time
	secretErr   error
	failures    int
	reclaiming  bool
	// data identifies the data that requests read, and fence guards the requests.
	data  data
	fence *fence
	// checkpointed is the time of the last checkpoint.
	checkpointed   time.Time
	reclaimResults chan reclaimResult
	lastReclaim    reclaimResult
}

// data identifies the data behind a Store by annex's mark.
type data struct {
	cluster uint64
	epoch   string
}

// probe probes the etcd once, and updates the breaker.
func (s *Store) probe(ctx context.Context) {
	w := s.desiredState()
	secretErr := s.refreshCredentials(ctx, w)
	conn, err := s.connect(w)
	if err != nil {
		s.report(ctx, w, s.failedToConnect(secretErr, err))
		return
	}
	defer func() {
		if s.state.connection != conn {
			conn.retire() // it is not used
		}
	}()
	seen := s.observe(ctx, conn)
	if ctx.Err() != nil {
		return // the Store is closed, not unreachable
	}
	seen.SecretErr = secretErr
	if s.state.credentials != nil {
		seen.CertificateExpires = s.state.credentials.expires
	}
	if s.name == hostingv1alpha1.DefaultStoreName {
		w = s.claimDefault(ctx, conn, w, seen)
	}
	seen.Unavailable = s.evaluate(ctx, conn, w, seen)
	if seen.Unavailable == nil && seen.Mark != nil && seen.Mark.Epoch == "" {
		seen.Unavailable = s.upgradeMark(ctx, conn, w, seen)
	}
	if seen.Unavailable != nil && conn == s.state.connection && s.toleratesFailure(seen) {
		s.probeSoon()
		return
	}
	if s.isReplaced(w, seen) {
		s.pool.replace(s)
		return
	}
	s.applyProbe(ctx, conn, w, seen)
	s.reclaim(ctx, conn, seen)
	s.report(ctx, w, seen)
}

// observe requests the state of etcd. The embedded etcd gets more time to answer.
func (s *Store) observe(ctx context.Context, conn *connection) *Snapshot {
	timeout := probeTimeout
	if s.embedded {
		timeout = embeddedProbeTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	floor, checkpoint := s.highest.Load(), int64(0)
	if s.state.fence != nil {
		checkpoint = s.state.fence.checkpoint.Load()
	}
	seen := conn.observe(ctx, s.embedded)
	seen.floor, seen.checkpoint = floor, checkpoint
	s.observeDisk(seen)
	return seen
}

// isReplaced reports whether requests are about to read other data than before, because the
// Store was adopted.
func (s *Store) isReplaced(w desiredState, seen *Snapshot) bool {
	if s.name == hostingv1alpha1.DefaultStoreName || seen.Unavailable != nil {
		return false
	}
	found := data{w.pinned, seen.Mark.Epoch}
	if s.state.data == (data{}) {
		s.state.data = found
	}
	return s.state.data != found
}

// toleratesFailure reports whether an available Store is still below the failure threshold.
func (s *Store) toleratesFailure(seen *Snapshot) bool {
	switch seen.Unavailable.Reason {
	case ReasonUnreachable, ReasonNoQuorum, ReasonBadCredentials, ReasonCertificateExpired:
	default:
		return false
	}
	s.state.failures++
	threshold := failureThreshold
	if seen.accepted || s.embedded {
		threshold = slowFailureThreshold
	}
	return s.breaker.Load().unavailable == nil && s.state.failures < threshold
}

// failedToConnect returns the result of a probe without a client.
func (s *Store) failedToConnect(secretErr, err error) *Snapshot {
	if secretErr != nil {
		err = secretErr
	}
	seen := &Snapshot{SecretErr: secretErr, Unavailable: s.unavailable(ReasonBadCredentials, err.Error())}
	seen.MembersErr, seen.readErr = err, err
	s.updateBreaker(seen.Unavailable, nil, 0, nil)
	s.state.connection = nil
	s.compact.set(false, s)
	return seen
}

// refreshCredentials reads the Secret again after secretInterval, or at once if the Store is
// unavailable. If that fails, the known credentials stay in use.
func (s *Store) refreshCredentials(ctx context.Context, w desiredState) error {
	if w.secret == nil {
		s.state.credentials, s.state.secret, s.state.secretErr = nil, secretRef{}, nil
		return nil
	}
	another := s.state.secret != *w.secret
	well := s.breaker.Load().unavailable == nil && s.state.secretErr == nil
	if !another && well && time.Since(s.state.secretRead) < s.pool.config.secretInterval {
		return nil
	}
	s.state.secret, s.state.secretRead = *w.secret, time.Now()
	if another {
		s.state.credentials = nil
	}
	var found *credentials
	if found, s.state.secretErr = s.pool.readCredentials(ctx, w.secret); s.state.secretErr != nil {
		return s.state.secretErr
	}
	if known := s.state.credentials; known == nil || known.version != found.version {
		s.state.credentials = found
	}
	return nil
}

// errNoCredentials is returned before the Secret was read for the first time.
var errNoCredentials = errors.New("its Secret was not read yet")

// connect returns the current connection, or a new one if endpoints or credentials changed.
func (s *Store) connect(w desiredState) (*connection, error) {
	if s.state.connection != nil && s.state.connection.shared {
		return s.state.connection, nil
	}
	known := s.state.credentials
	if w.secret != nil && known == nil {
		return nil, errNoCredentials
	}
	if c := s.state.connection; c != nil && c.target.equal(w.target) && c.credentials == known {
		return c, nil
	}
	return s.pool.dial(w.target, known)
}

// applyProbe updates the breaker with the result of a probe.
func (s *Store) applyProbe(ctx context.Context, conn *connection, w desiredState, seen *Snapshot) {
	if before := s.state.connection; before != nil && before != conn {
		defer before.retire() // also one without a breaker
	}
	s.state.connection = conn
	if seen.Unavailable == nil {
		s.state.failures = 0
		s.pool.enableWatchProgress(seen)
		etcdkv.Raise(&s.highest, seen.revision)
		s.updateFence(ctx, conn, w, seen)
	}
	s.updateBreaker(seen.Unavailable, conn, w.pinned, s.state.fence)
	s.compact.set(seen.Unavailable == nil, s)
}

// updateFence fences requests with the mark that was found. The etcd inside the process needs no
// fence, because no other cluster can be behind its socket. A full etcd may not have a mark.
func (s *Store) updateFence(ctx context.Context, conn *connection, w desiredState, seen *Snapshot) {
	if seen.Mark == nil {
		return
	}
	s.state.data = data{w.pinned, seen.Mark.Epoch}
	if !s.embedded {
		if s.state.fence == nil || s.state.fence.mark != seen.rawMark {
			s.state.fence = newFence(s.prefix, seen.rawMark, s.pool.process)
		}
		s.writeCheckpoint(ctx, conn, s.state.fence, seen)
	}
	seen.History = s.history(s.state.fence, seen)
	s.known.Store(&seen.History)
}

// updateBreaker replaces the breaker unless it would be equal, so that requests in flight
// continue.
func (s *Store) updateBreaker(refused *UnavailableError, conn *connection, cluster uint64, fence *fence) {
	is := s.breaker.Load()
	if ptr.Equal(is.unavailable, refused) && is.connection == conn && is.cluster == cluster && is.fence == fence {
		return
	}
	s.setBreaker(newBreaker(refused, conn, cluster, fence))
}

// evaluate returns why requests must be refused, nil if they need not. Messages are the same for
// the same cause, or each probe would notify the listeners.
func (s *Store) evaluate(ctx context.Context, conn *connection, w desiredState, seen *Snapshot) *UnavailableError {
	answers := 0
	for _, answer := range seen.Endpoints {
		if answer.Err != nil {
			continue
		}
		answers++
		if found := answer.Status.Header.GetClusterId(); w.pinned != 0 && found != w.pinned {
			return s.unavailable(ReasonWrongCluster, wrongCluster(fmt.Sprintf("its endpoint %s leads", answer.Endpoint), found, w.pinned))
		}
		if err := externaletcd.CheckVersion(answer.Status.Version); err != nil {
			return s.unavailable(ReasonTooOld, fmt.Sprintf("%s: %v", answer.Endpoint, err))
		}
	}
	switch {
	case seen.notEtcd != nil:
		return s.unavailable(ReasonNotEtcd, "its server "+seen.notEtcd.Error())
	case answers == 0 && seen.readErr != nil && seen.SecretErr != nil:
		return s.unavailable(ReasonBadCredentials, fmt.Sprintf("%v; with the previous credentials no endpoint answers: %s", seen.SecretErr, conn.explain(ctx, seen)))
	case answers == 0 && seen.readErr != nil && conn.expired():
		return s.unavailable(ReasonCertificateExpired, fmt.Sprintf("the client certificate expired at %s; no endpoint answers: %s",
			conn.credentials.expires.UTC().Format(time.RFC3339), conn.explain(ctx, seen)))
	case answers == 0 && seen.readErr != nil:
		return s.unavailable(ReasonUnreachable, "no endpoint answers: "+conn.explain(ctx, seen))
	case seen.hasAlarm("CORRUPT"):
		return s.unavailable(ReasonCorrupt, "etcd found that its members hold different data")
	case seen.readErr != nil:
		return s.unavailable(ReasonNoQuorum, fmt.Sprintf("the cluster does not answer as a whole: %v", withoutDetails(seen.readErr)))
	}
	return s.checkMark(w, seen)
}

// checkMark checks that the data belong to the Store.
func (s *Store) checkMark(w desiredState, seen *Snapshot) *UnavailableError {
	mark := seen.Mark
	switch {
	case seen.Cluster == 0:
		return s.unavailable(ReasonWrongCluster, "its endpoints lead to different etcd clusters")
	case w.pinned != 0 && seen.Cluster != w.pinned:
		return s.unavailable(ReasonWrongCluster, wrongCluster("its endpoints lead", seen.Cluster, w.pinned))
	case s.name == hostingv1alpha1.DefaultStoreName && seen.rawMark == "" && s.state.fence == nil && w.known.Epoch == "" && seen.claimErr == nil:
		return nil // a full etcd accepts no mark
	case seen.markErr != nil:
		return s.unavailable(ReasonInUse, unreadableMark(s.prefix, FormatClusterID(seen.Cluster), seen.markErr))
	case mark != nil && (mark.Store != s.name || w.uid != "" && mark.UID != w.uid):
		return s.unavailable(ReasonInUse, belongsToAnother(s.prefix, FormatClusterID(seen.Cluster), mark))
	case mark != nil && mark.Format.isNewer():
		return s.unavailable(ReasonNewerFormat, fmt.Sprintf("a newer release of annex wrote it: it needs one that knows the format %d, this one knows %d",
			max(mark.Format.MinReader, mark.Format.MinWriter), currentFormat))
	case seen.claimErr != nil:
		return seen.claimErr
	case w.pinned == 0:
		return s.unavailable(ReasonUnclaimed, "it was reached and is not yet noted as annex's")
	case mark == nil:
		return s.unavailable(ReasonDataReplaced, dataReplaced)
	case w.known.Epoch != "" && mark.Epoch != w.known.Epoch:
		return s.unavailable(ReasonDataReplaced, "its etcd cluster has the mark that annex left there, but of another time: its data were replaced")
	case seen.offsetErr != nil:
		return s.unavailable(ReasonCorrupt, fmt.Sprintf("what annex noted about its revisions cannot be read: %v", seen.offsetErr))
	}
	return s.checkHistory(w, seen)
}

// explain returns for each endpoint why it does not answer, and notes whether one accepts
// connections. gRPC often knows only that it timed out; a new connection shows the reason.
func (c *connection) explain(ctx context.Context, seen *Snapshot) string {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	var silent []string
	for _, answer := range seen.Endpoints {
		err := externaletcd.Probe(ctx, answer.Endpoint, c.tls())
		if err == nil {
			seen.accepted = true
			err = withoutDetails(answer.Err)
		}
		silent = append(silent, fmt.Sprintf("%s: %v", answer.Endpoint, err))
	}
	return strings.Join(silent, "; ")
}

// expired reports whether the client certificate has expired.
func (c *connection) expired() bool {
	return c.credentials != nil && !c.credentials.expires.IsZero() && c.credentials.expires.Before(time.Now())
}

// withoutDetails replaces gRPC's errors of time-outs, which differ each time.
func withoutDetails(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || codeOf(err) == codes.DeadlineExceeded {
		return fmt.Errorf("no answer within %s", probeTimeout)
	}
	return err
}

// report publishes the result of a probe.
func (s *Store) report(ctx context.Context, w desiredState, seen *Snapshot) {
	seen.UID, seen.Generation = w.uid, w.generation
	if refused := s.breaker.Load().unavailable; refused != nil && seen.Unavailable == nil {
		s.probeSoon() // a request tripped the breaker meanwhile
	}
	before := s.snapshot.Swap(seen)
	s.probedOnce.Do(func() { close(s.probed) })
	s.metrics.set(seen)
	if isSignificant(before, seen) {
		s.pool.notify(s.name)
	}
}

// isSignificant reports whether listeners are notified of a probe.
func isSignificant(before, after *Snapshot) bool {
	return !ptr.Equal(before.Unavailable, after.Unavailable) || before.NoSpace != after.NoSpace || before.LowDisk != after.LowDisk || before.Generation != after.Generation
}
