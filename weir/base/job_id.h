// SPDX-License-Identifier: Apache-2.0
//
// The id of a job in requests: up to 31 bytes of any value. Lustre sends a field of 32 bytes whose
// last byte ends the string, so a client can send at most 31; a longer text is truncated.
//
//   JobId("dd.500").text() == "dd.500"        JobId() is the empty id: the request names no job
//
// Trivially copyable; holds no pointer.
#pragma once

#include <type_traits>

#include "weir/base/short_text.h"

namespace weir {

using JobId = ShortText<struct OfJob>;

static_assert(sizeof(JobId) == 32);
static_assert(std::is_trivially_copyable_v<JobId>);

}  // namespace weir
