// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/annex-dev/annex/pkg/serving"
)

// Flags of upstream's with defaults that depend on the mode.
const (
	shutdownDelayFlag = "shutdown-delay-duration"
	streamsFlag       = "http2-max-streams-per-connection"
)

const (
	// mainShutdownDelay is the maximum time in a healthy cluster until a replica that is not
	// ready gets no new connections: kubelet and kube-proxy react within seconds.
	mainShutdownDelay = 10 * time.Second

	// mainStreams is upstream's recommendation for aggregated servers. Each watch uses one;
	// a main cluster that needs more opens another connection.
	mainStreams = 1000

	// mainConnectionAge moves the connection of the main cluster's aggregator, which carries
	// all requests, between replicas. client-go renews watches every five to ten minutes.
	mainConnectionAge = 5 * time.Minute
)

// Draining configures how clients move to other replicas.
type Draining struct {
	// MaxConnectionAge bounds the use of a connection for new requests.
	MaxConnectionAge time.Duration

	generic *genericoptions.ServerRunOptions
	serving *Serving
}

// NewDraining returns the defaults of a standalone annex without replicas.
func NewDraining(generic *genericoptions.ServerRunOptions, serving *Serving) *Draining {
	return &Draining{generic: generic, serving: serving}
}

// AddFlags adds annex's flag, and replaces the help texts of upstream's.
func (o *Draining) AddFlags(fs, genericFlags, servingFlags *pflag.FlagSet) {
	fs.DurationVar(&o.MaxConnectionAge, "max-connection-age", o.MaxConnectionAge,
		"How long an HTTP/2 connection accepts new requests before the client gets a GOAWAY and opens another one, "+
			"possibly to another replica. No request is lost, and open requests such as watches continue. 0 means no limit. "+
			"The default with a main cluster and --etcd-servers is "+mainConnectionAge.String()+".")
	genericFlags.Lookup(shutdownDelayFlag).Usage = "How long annex continues to serve after the signal to stop, with /readyz failing, " +
		"so that load balancers send new connections elsewhere. Then it sends GOAWAY to its clients and stops without losing a request. " +
		"Use 0 without other replicas: annex stops at once. " +
		"The default with a main cluster and --etcd-servers is " + mainShutdownDelay.String() + "."
	genericFlags.Lookup("goaway-chance").Usage = "The probability, from 0 to 0.02, that a request over HTTP/2 is answered with GOAWAY, so that the client opens " +
		"another connection, possibly to another replica. No request is lost, and open requests continue."
	servingFlags.Lookup(streamsFlag).Usage = fmt.Sprintf("The maximum number of open requests, including watches, on one HTTP/2 connection, "+
		"at most %d. The default is 100, and %d with a main cluster, which sends all requests over one connection.", serving.MaxStreams, mainStreams)
	hide(genericFlags, "shutdown-send-retry-after")
}

// useMainCluster sets the defaults of an aggregated annex. replicas is set if there may be
// others on the same etcd.
func (o *Draining) useMainCluster(replicas bool, isSet func(flag string) bool) {
	if !isSet(streamsFlag) {
		o.serving.HTTP2MaxStreamsPerConnection = mainStreams
	}
	if !replicas {
		return
	}
	if !isSet(shutdownDelayFlag) {
		o.generic.ShutdownDelayDuration = mainShutdownDelay
	}
	if !isSet("max-connection-age") {
		o.MaxConnectionAge = mainConnectionAge
	}
}

// Validate checks the flags.
func (o *Draining) Validate() []error {
	var errs []error
	if o.MaxConnectionAge < 0 {
		errs = append(errs, fmt.Errorf("--max-connection-age must not be negative"))
	}
	if streams := o.serving.HTTP2MaxStreamsPerConnection; streams > serving.MaxStreams {
		errs = append(errs, fmt.Errorf("--%s %d must not be more than %d", streamsFlag, streams, serving.MaxStreams))
	}
	if o.generic.ShutdownSendRetryAfter {
		errs = append(errs, fmt.Errorf("--shutdown-send-retry-after is not supported: clients move to other replicas before annex refuses requests; use --%s", shutdownDelayFlag))
	}
	return errs
}
