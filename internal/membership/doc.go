// Package membership is the member's half of the hand-over protocol: rules M1 to M11 of
// docs/protocol/handover.md as a state machine of one member. It holds no clock, socket or
// randomness of its own: it takes inputs with an instant and returns actions, so that a
// simulator can drive it as well as the consumer does.
//
// Duties of the driver:
//
//  1. Call Step whenever something happened, and at the latest at Wake. Several inputs of
//     one instant may go into one Step; their report is then sent once.
//  2. Carry out the actions in order, before the next Step.
//  3. A Send ends the call before it: cancel it. Its answer, should it still come, may be
//     given to Step all the same, which ignores it (M1).
//  4. Between Own and Revoke, Drop or the lease end that Lease told, a shard may be read. The
//     driver checks the lease end itself before every read, dispatch and acknowledgement
//     (M3): Step may be late, the lease end is not.
//  5. After Revoke, give back Drained once nothing of that ownership is in flight. After Drop
//     nothing is given back.
//
// Instants are durations since the start of the process, on whichever of the monotonic and
// the wall clock ran further (M2). Step never lets them go back.
package membership
