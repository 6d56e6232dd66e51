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

// Flags of upstream's whose default depends on how annex runs.
const (
	shutdownDelayFlag = "shutdown-delay-duration"
	streamsFlag       = "http2-max-streams-per-connection"
)

const (
	// mainShutdownDelay is how long it takes at the most, in a cluster that is
	// well, until a replica that is not ready gets no new connections: a kubelet
	// notices within seconds, and kube-proxy on the last node a few seconds later.
	mainShutdownDelay = 10 * time.Second

	// mainStreams is what upstream recommends for aggregated servers. Each watch
	// takes one; a main cluster that needs more opens another connection.
	mainStreams = 1000

	// mainConnectionAge has the connection of a main cluster's aggregator, which
	// carries everything, come round to all replicas in minutes, as its watches
	// do, which client-go renews every five to ten.
	mainConnectionAge = 5 * time.Minute
)

// Draining says how clients come to use other replicas than this one.
type Draining struct {
	// MaxConnectionAge is how long a connection is used for new requests.
	MaxConnectionAge time.Duration

	generic *genericoptions.ServerRunOptions
	serving *Serving
	flags   *pflag.FlagSet
}

// NewDraining returns the defaults of annex alone: nobody else would serve.
func NewDraining(generic *genericoptions.ServerRunOptions, serving *Serving) *Draining {
	return &Draining{generic: generic, serving: serving}
}

// AddFlags adds annex's flag, and says of upstream's what they mean here.
func (o *Draining) AddFlags(fs, genericFlags, servingFlags *pflag.FlagSet) {
	fs.DurationVar(&o.MaxConnectionAge, "max-connection-age", o.MaxConnectionAge,
		"How long an HTTP/2 connection is used for new requests before its client is asked, without losing any, to open another, "+
			"which may reach another replica. Requests that are open, such as watches, go on. 0 means for ever. "+
			"The default behind a main cluster with --etcd-servers is "+mainConnectionAge.String()+".")
	genericFlags.Lookup(shutdownDelayFlag).Usage = "How long annex goes on as before when it is told to stop, except that /readyz fails: " +
		"until nobody opens new connections to it. Then it asks its clients to leave and ends without losing a request. " +
		"0 means that there is nobody else to go to: annex ends at once. " +
		"The default behind a main cluster with --etcd-servers is " + mainShutdownDelay.String() + "."
	genericFlags.Lookup("goaway-chance").Usage = "The probability, from 0 to 0.02, that a request over HTTP/2 has its client asked, " +
		"without losing any, to open another connection, which may reach another replica. Requests that are open go on."
	servingFlags.Lookup(streamsFlag).Usage = fmt.Sprintf("How many requests, watches included, a client may have open on one HTTP/2 connection; "+
		"%d at the most. The default is 100, and %d behind a main cluster, which sends everything over one.", serving.MaxStreams, mainStreams)
	hide(genericFlags, "shutdown-send-retry-after")
	o.flags = pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, flag := range []*pflag.Flag{fs.Lookup("max-connection-age"), genericFlags.Lookup(shutdownDelayFlag), servingFlags.Lookup(streamsFlag)} {
		o.flags.AddFlag(flag)
	}
}

// useMainCluster sets what was not set by flag for annex behind a main cluster;
// replicas says that there may be others on the same etcd.
func (o *Draining) useMainCluster(replicas bool) {
	if !o.isSet(streamsFlag) {
		o.serving.HTTP2MaxStreamsPerConnection = mainStreams
	}
	if !replicas {
		return
	}
	if !o.isSet(shutdownDelayFlag) {
		o.generic.ShutdownDelayDuration = mainShutdownDelay
	}
	if !o.isSet("max-connection-age") {
		o.MaxConnectionAge = mainConnectionAge
	}
}

func (o *Draining) isSet(name string) bool {
	return o.flags != nil && o.flags.Changed(name)
}

// Validate checks what upstream does not.
func (o *Draining) Validate() []error {
	var errs []error
	if o.MaxConnectionAge < 0 {
		errs = append(errs, fmt.Errorf("--max-connection-age must not be negative"))
	}
	if streams := o.serving.HTTP2MaxStreamsPerConnection; streams > serving.MaxStreams {
		errs = append(errs, fmt.Errorf("--%s %d must not be more than %d", streamsFlag, streams, serving.MaxStreams))
	}
	if o.generic.ShutdownSendRetryAfter {
		errs = append(errs, fmt.Errorf("--shutdown-send-retry-after is not supported: clients are led elsewhere before annex refuses any; use --%s", shutdownDelayFlag))
	}
	return errs
}
