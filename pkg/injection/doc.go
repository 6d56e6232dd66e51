// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package injection applies InjectionProfiles: it adds their parts to the pod templates of custom
// resources. It is used by the admission plugin of the server and by the webhook.
//
// A write of an object is handled in three steps. The parts that were injected before are taken out
// of it, with the help of the record that its annotation has. If what remains of the pod templates is
// as in the stored object, the client did not change them, and they keep the parts that they have.
// Otherwise they get the parts of the profile that selects the object now. So writes of other fields
// never change pod templates, and repeated calls change nothing.
//
// Clients write both the object and the record. A record from elsewhere is right in a copy, and a
// webhook cannot distinguish it from its own of the same request. It has effects on its object only, so the
// work for it is bounded: linear in the size of the object, nothing is added that was not there or in
// the profile, and the context of the request ends it.
package injection
