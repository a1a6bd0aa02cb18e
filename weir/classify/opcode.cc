// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/opcode.h"

#include <algorithm>
#include <iterator>

namespace weir {
namespace {

struct Opcode {
  std::uint32_t number;
  std::string_view name;
};

// By number. Where a name changed between releases, both are read and the newer one is written: it
// comes first. 14 and 15 have had no name since the SAN requests went.
constexpr Opcode kOpcodes[] = {
    {0, "ost_reply"},
    {1, "ost_getattr"},
    {2, "ost_setattr"},
    {3, "ost_read"},
    {4, "ost_write"},
    {5, "ost_create"},
    {6, "ost_destroy"},
    {7, "ost_get_info"},
    {8, "ost_connect"},
    {9, "ost_disconnect"},
    {10, "ost_punch"},
    {11, "ost_open"},
    {12, "ost_close"},
    {13, "ost_statfs"},
    {16, "ost_sync"},
    {17, "ost_set_info"},
    {18, "ost_quotacheck"},
    {19, "ost_quotactl"},
    {20, "ost_quota_adjust_qunit"},
    {21, "ost_ladvise"},
    {22, "ost_fallocate"},
    {23, "ost_seek"},
    {33, "mds_getattr"},
    {34, "mds_getattr_lock"},
    {35, "mds_close"},
    {36, "mds_reint"},
    {37, "mds_readpage"},
    {38, "mds_connect"},
    {39, "mds_disconnect"},
    {40, "mds_get_root"},
    {40, "mds_getstatus"},
    {41, "mds_statfs"},
    {42, "mds_pin"},
    {43, "mds_unpin"},
    {44, "mds_sync"},
    {45, "mds_done_writing"},
    {46, "mds_set_info"},
    {47, "mds_quotacheck"},
    {48, "mds_quotactl"},
    {49, "mds_getxattr"},
    {50, "mds_setxattr"},
    {51, "mds_writepage"},
    {52, "mds_is_subdir"},
    {53, "mds_get_info"},
    {54, "mds_hsm_state_get"},
    {55, "mds_hsm_state_set"},
    {56, "mds_hsm_action"},
    {57, "mds_hsm_progress"},
    {58, "mds_hsm_request"},
    {59, "mds_hsm_ct_register"},
    {60, "mds_hsm_ct_unregister"},
    {61, "mds_swap_layouts"},
    {62, "mds_rmfid"},
    {63, "mds_batch"},
    {64, "mds_hsm_data_version"},
    {101, "ldlm_enqueue"},
    {102, "ldlm_convert"},
    {103, "ldlm_cancel"},
    {104, "ldlm_bl_callback"},
    {105, "ldlm_cp_callback"},
    {106, "ldlm_gl_callback"},
    {107, "ldlm_set_info"},
    {250, "mgs_connect"},
    {251, "mgs_disconnect"},
    {252, "mgs_exception"},
    {253, "mgs_target_reg"},
    {254, "mgs_target_del"},
    {255, "mgs_set_info"},
    {256, "mgs_config_read"},
    {400, "obd_ping"},
    {401, "llog_cancel"},
    {401, "llog_origin_handle_cancel"},
    {402, "obd_quota_callback"},
    {403, "dt_index_read"},
    {501, "llog_origin_handle_open"},
    {501, "llog_origin_handle_create"},
    {502, "llog_origin_handle_next_block"},
    {503, "llog_origin_handle_read_header"},
    {504, "llog_origin_handle_write_rec"},
    {505, "llog_origin_handle_close"},
    {506, "llog_origin_connect"},
    {507, "llog_catinfo"},
    {508, "llog_origin_handle_prev_block"},
    {509, "llog_origin_handle_destroy"},
    {601, "quota_acquire"},
    {602, "quota_release"},
    {700, "seq_query"},
    {801, "sec_ctx_init"},
    {802, "sec_ctx_init_cont"},
    {803, "sec_ctx_fini"},
    {900, "fld_query"},
    {901, "fld_read"},
    {1000, "out_update"},
    {1101, "lfsck_notify"},
    {1102, "lfsck_query"},
};
static_assert(std::is_sorted(std::begin(kOpcodes), std::end(kOpcodes),
                             [](const Opcode& a, const Opcode& b) { return a.number < b.number; }));

}  // namespace

std::optional<std::uint32_t> opcode_number(std::string_view name) {
  for (const Opcode& opcode : kOpcodes) {
    if (opcode.name == name) return opcode.number;
  }
  return std::nullopt;
}

std::string opcode_name(std::uint32_t number) {
  for (const Opcode& opcode : kOpcodes) {
    if (opcode.number == number) return std::string(opcode.name);
  }
  return std::to_string(number);
}

}  // namespace weir
