// SPDX-License-Identifier: Apache-2.0
//
// The device limiter of weir.h. Uses the real clock, and waits for events only.
#include <cerrno>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>
#include <poll.h>

#include "weir/embed/weir.h"

namespace weir::embed {
namespace {

constexpr std::uint64_t kHour = 3'600'000'000'000;

TEST(CLimiter, TakesRefusesAndWakes) {
  weir_limiter* limiter = nullptr;
  const weir_bucket bytes = {.size = 1000, .one_time_burst = 0, .refill_ns = 20'000'000};
  ASSERT_EQ(weir_limiter_new(&limiter, &bytes, nullptr), 0) << weir_error();
  EXPECT_EQ(weir_limiter_resume(limiter), EAGAIN) << "no event is pending";
  EXPECT_EQ(weir_limiter_take(limiter, 1000), 0);
  EXPECT_EQ(weir_limiter_take(limiter, 900), EAGAIN);
  EXPECT_STREQ(weir_error(), "limiter: has no tokens left; wait for weir_limiter_fd()");
  pollfd wait{.fd = weir_limiter_fd(limiter), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&wait, 1, -1), 1);
  EXPECT_EQ(weir_limiter_resume(limiter), 0) << weir_error();
  EXPECT_EQ(weir_limiter_take(limiter, 900), 0) << weir_error();
  EXPECT_EQ(weir_limiter_free(limiter), 0);
}

TEST(CLimiter, WhatIsGivenBackCanBeTakenAgain) {
  weir_limiter* limiter = nullptr;
  const weir_bucket bytes = {.size = 100, .one_time_burst = 0, .refill_ns = kHour};
  const weir_bucket operations = {.size = 1, .one_time_burst = 0, .refill_ns = kHour};
  ASSERT_EQ(weir_limiter_new(&limiter, &bytes, &operations), 0) << weir_error();
  ASSERT_EQ(weir_limiter_take(limiter, 100), 0);
  EXPECT_EQ(weir_limiter_give_back(limiter, 100), 0);
  EXPECT_EQ(weir_limiter_take(limiter, 100), 0) << weir_error();
  EXPECT_EQ(weir_limiter_take(limiter, 1), EAGAIN);
  EXPECT_EQ(weir_limiter_update(limiter, nullptr, nullptr), 0);
  pollfd wait{.fd = weir_limiter_fd(limiter), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&wait, 1, -1), 1) << "without limits it can continue at once";
  EXPECT_EQ(weir_limiter_resume(limiter), 0);
  EXPECT_EQ(weir_limiter_take(limiter, UINT64_MAX), 0);
  EXPECT_EQ(weir_limiter_free(limiter), 0);
}

TEST(CLimiter, MisuseIsAnError) {
  weir_limiter* limiter = nullptr;
  const weir_bucket endless = {.size = 1, .one_time_burst = 0, .refill_ns = UINT64_MAX};
  EXPECT_EQ(weir_limiter_new(nullptr, nullptr, nullptr), EINVAL);
  EXPECT_EQ(weir_limiter_new(&limiter, &endless, nullptr), EINVAL);
  EXPECT_EQ(limiter, nullptr);
  EXPECT_EQ(weir_limiter_take(nullptr, 1), EINVAL);
  EXPECT_STREQ(weir_error(), "weir_limiter_take: limiter is NULL");
  EXPECT_EQ(weir_limiter_resume(nullptr), EINVAL);
  EXPECT_EQ(weir_limiter_give_back(nullptr, 1), EINVAL);
  EXPECT_EQ(weir_limiter_update(nullptr, nullptr, nullptr), EINVAL);
  EXPECT_EQ(weir_limiter_fd(nullptr), -1);
  EXPECT_EQ(weir_limiter_free(nullptr), 0);
  ASSERT_EQ(weir_limiter_new(&limiter, nullptr, nullptr), 0);
  EXPECT_EQ(weir_limiter_update(limiter, &endless, nullptr), EINVAL);
  EXPECT_EQ(weir_limiter_free(limiter), 0);
  EXPECT_EQ(weir_limiter_take(limiter, 1), EBADF);
  EXPECT_EQ(weir_limiter_fd(limiter), -1);
  EXPECT_EQ(weir_limiter_free(limiter), EBADF);
}

TEST(CLimiter, ADebtOfAnyLengthIsKept) {
  weir_limiter* limiter = nullptr;
  const weir_bucket bytes = {.size = 1, .one_time_burst = 0, .refill_ns = kHour};
  ASSERT_EQ(weir_limiter_new(&limiter, &bytes, nullptr), 0) << weir_error();
  EXPECT_EQ(weir_limiter_take(limiter, UINT64_MAX), 0) << "more than the bucket is taken at once";
  EXPECT_EQ(weir_limiter_take(limiter, 0), EAGAIN);
  EXPECT_EQ(weir_limiter_give_back(limiter, UINT64_MAX), 0);
  EXPECT_EQ(weir_limiter_free(limiter), 0);
}

}  // namespace
}  // namespace weir::embed
