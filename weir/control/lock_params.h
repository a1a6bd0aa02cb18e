// SPDX-License-Identifier: Apache-2.0
//
// The parameters of a lock service, with Lustre's names and formats:
//
//   ldlm.namespaces.NAME.pool.{server_lock_volume,granted,grant_rate,cancel_rate,grant_speed,
//                              grant_plan,lock_volume_factor,state}                  read
//   ldlm.namespaces.NAME.pool.{limit,recalc_period}                                  and written
//   ldlm.namespaces.NAME.{lock_count,resource_count}                                 read
//   ldlm.namespaces.NAME.{lru_size,lru_max_age}                                      and written
//   ldlm.server_pool.*          the pool of the first namespace, as the document of 2007 names it
//
// Values are numbers and a newline; rates are per second. recalc_period is in seconds and
// lru_max_age in milliseconds (both accept "5s" and "500ms"). lru_size and lru_max_age apply to the
// caches of all clients: 0 leaves them to the volume and to the clients. A write to a read-only
// parameter fails with EACCES, as on Lustre; lock_volume_factor is set by the clients here.
//
// A Params object created here is for one use, in the thread that may call the console: reads use
// one view, writes call the console.
#pragma once

#include <string>
#include <string_view>

#include "weir/control/params.h"
#include "weir/lock/view.h"

namespace weir::control {

Params lock_params(lock::Console& console);

// The parameter of a namespace's pool, for changes from other sources.
std::string lock_pool_path(std::string_view name, std::string_view leaf);
std::string lock_namespace_path(std::string_view name, std::string_view leaf);

}  // namespace weir::control
