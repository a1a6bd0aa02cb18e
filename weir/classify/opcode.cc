// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/opcode.h"

#include <algorithm>
#include <iterator>

namespace weir {
namespace {

using Kind = OperationKind;

struct Opcode {
  std::uint32_t number;
  std::string_view name;
  Kind kind;
};

// By number. If a name changed between releases, both are accepted and the newer one, which is
// first, is printed. The kind is what a request does to the device. 14 and 15 have had no name
// since the SAN requests were removed.
constexpr Opcode kOpcodes[] = {
    {0, "ost_reply", Kind::kOther},
    {1, "ost_getattr", Kind::kMetadataRead},
    {2, "ost_setattr", Kind::kMetadataChange},
    {3, "ost_read", Kind::kRead},
    {4, "ost_write", Kind::kWrite},
    {5, "ost_create", Kind::kMetadataChange},
    {6, "ost_destroy", Kind::kMetadataChange},
    {7, "ost_get_info", Kind::kMetadataRead},
    {8, "ost_connect", Kind::kOther},
    {9, "ost_disconnect", Kind::kOther},
    {10, "ost_punch", Kind::kDiscard},
    {11, "ost_open", Kind::kMetadataChange},
    {12, "ost_close", Kind::kMetadataChange},
    {13, "ost_statfs", Kind::kMetadataRead},
    {16, "ost_sync", Kind::kFlush},
    {17, "ost_set_info", Kind::kMetadataChange},
    {18, "ost_quotacheck", Kind::kOther},
    {19, "ost_quotactl", Kind::kOther},
    {20, "ost_quota_adjust_qunit", Kind::kOther},
    {21, "ost_ladvise", Kind::kRead},
    {22, "ost_fallocate", Kind::kZero},
    {23, "ost_seek", Kind::kMetadataRead},
    {33, "mds_getattr", Kind::kMetadataRead},
    {34, "mds_getattr_lock", Kind::kMetadataRead},
    {35, "mds_close", Kind::kMetadataChange},
    {36, "mds_reint", Kind::kMetadataChange},
    {37, "mds_readpage", Kind::kMetadataRead},
    {38, "mds_connect", Kind::kOther},
    {39, "mds_disconnect", Kind::kOther},
    {40, "mds_get_root", Kind::kMetadataRead},
    {40, "mds_getstatus", Kind::kMetadataRead},
    {41, "mds_statfs", Kind::kMetadataRead},
    {42, "mds_pin", Kind::kOther},
    {43, "mds_unpin", Kind::kOther},
    {44, "mds_sync", Kind::kFlush},
    {45, "mds_done_writing", Kind::kMetadataChange},
    {46, "mds_set_info", Kind::kMetadataChange},
    {47, "mds_quotacheck", Kind::kOther},
    {48, "mds_quotactl", Kind::kOther},
    {49, "mds_getxattr", Kind::kMetadataRead},
    {50, "mds_setxattr", Kind::kMetadataChange},
    {51, "mds_writepage", Kind::kWrite},
    {52, "mds_is_subdir", Kind::kMetadataRead},
    {53, "mds_get_info", Kind::kMetadataRead},
    {54, "mds_hsm_state_get", Kind::kMetadataRead},
    {55, "mds_hsm_state_set", Kind::kMetadataChange},
    {56, "mds_hsm_action", Kind::kOther},
    {57, "mds_hsm_progress", Kind::kOther},
    {58, "mds_hsm_request", Kind::kOther},
    {59, "mds_hsm_ct_register", Kind::kOther},
    {60, "mds_hsm_ct_unregister", Kind::kOther},
    {61, "mds_swap_layouts", Kind::kMetadataChange},
    {62, "mds_rmfid", Kind::kMetadataChange},
    {63, "mds_batch", Kind::kMetadataChange},
    {64, "mds_hsm_data_version", Kind::kMetadataRead},
    {101, "ldlm_enqueue", Kind::kLock},
    {102, "ldlm_convert", Kind::kLock},
    {103, "ldlm_cancel", Kind::kLock},
    {104, "ldlm_bl_callback", Kind::kLock},
    {105, "ldlm_cp_callback", Kind::kLock},
    {106, "ldlm_gl_callback", Kind::kLock},
    {107, "ldlm_set_info", Kind::kOther},
    {250, "mgs_connect", Kind::kOther},
    {251, "mgs_disconnect", Kind::kOther},
    {252, "mgs_exception", Kind::kOther},
    {253, "mgs_target_reg", Kind::kOther},
    {254, "mgs_target_del", Kind::kOther},
    {255, "mgs_set_info", Kind::kOther},
    {256, "mgs_config_read", Kind::kMetadataRead},
    {400, "obd_ping", Kind::kOther},
    {401, "llog_cancel", Kind::kOther},
    {401, "llog_origin_handle_cancel", Kind::kOther},
    {402, "obd_quota_callback", Kind::kOther},
    {403, "dt_index_read", Kind::kMetadataRead},
    {501, "llog_origin_handle_open", Kind::kOther},
    {501, "llog_origin_handle_create", Kind::kOther},
    {502, "llog_origin_handle_next_block", Kind::kOther},
    {503, "llog_origin_handle_read_header", Kind::kOther},
    {504, "llog_origin_handle_write_rec", Kind::kOther},
    {505, "llog_origin_handle_close", Kind::kOther},
    {506, "llog_origin_connect", Kind::kOther},
    {507, "llog_catinfo", Kind::kOther},
    {508, "llog_origin_handle_prev_block", Kind::kOther},
    {509, "llog_origin_handle_destroy", Kind::kOther},
    {601, "quota_acquire", Kind::kOther},
    {602, "quota_release", Kind::kOther},
    {700, "seq_query", Kind::kMetadataRead},
    {801, "sec_ctx_init", Kind::kOther},
    {802, "sec_ctx_init_cont", Kind::kOther},
    {803, "sec_ctx_fini", Kind::kOther},
    {900, "fld_query", Kind::kMetadataRead},
    {901, "fld_read", Kind::kMetadataRead},
    {1000, "out_update", Kind::kMetadataChange},
    {1101, "lfsck_notify", Kind::kOther},
    {1102, "lfsck_query", Kind::kOther},
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

OperationKind operation_kind(std::uint32_t opcode) {
  const Opcode* const found =
      std::lower_bound(std::begin(kOpcodes), std::end(kOpcodes), opcode,
                       [](const Opcode& one, std::uint32_t number) { return one.number < number; });
  return found != std::end(kOpcodes) && found->number == opcode ? found->kind : Kind::kOther;
}

}  // namespace weir
