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
package injection
