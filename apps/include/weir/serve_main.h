// SPDX-License-Identifier: Apache-2.0
//
// `weir serve` as a function, for programs that extend it, for example with their own
// policy (weir/schedule/policy_kinds.h):
//
//   int main(int argc, char** argv) {
//     if (auto added = weir::add_policy(edf()); !added) return 70;
//     return weir::serve_main(argc, argv);
//   }
//
// Arguments and exit statuses are those of weir-serve(1). Returns when the server has stopped.
#pragma once

namespace weir {

int serve_main(int argc, char** argv);

}  // namespace weir
