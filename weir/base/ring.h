// SPDX-License-Identifier: Apache-2.0
//
// A FIFO queue of objects that are stored elsewhere; any object can be removed from the middle. The
// objects form a ring, and the queue itself is one pointer to the first: a hundred thousand queues,
// most of them empty, take eight bytes each.
//
//   first -> second -> ... -> last -> first        links: { next, previous } in the object
//
// An object is in one ring at a time and must be removed before it is destroyed; the link
// asserts this.
#pragma once

#include "weir/base/assert.h"

namespace weir {

template <class T>
class RingLink {
 public:
  RingLink() = default;
  RingLink(const RingLink&) = delete;
  RingLink& operator=(const RingLink&) = delete;
  ~RingLink() { WEIR_ASSERT(!is_linked()); }

  bool is_linked() const { return next_ != nullptr; }

 private:
  template <class U, RingLink<U> U::*kLink>
  friend class Ring;

  T* next_ = nullptr;
  T* previous_ = nullptr;
};

template <class T, RingLink<T> T::*kLink>
class Ring {
 public:
  bool empty() const { return first_ == nullptr; }
  // REQUIRES: not empty.
  T& front() const { return *first_; }
  // The next object, or nullptr if this is the last. REQUIRES: it is in this ring.
  T* behind(const T& node) const {
    T* const next = (node.*kLink).next_;
    return next == first_ ? nullptr : next;
  }

  // REQUIRES: in no ring.
  void push_back(T& node) {
    WEIR_ASSERT(!(node.*kLink).is_linked());
    if (first_ == nullptr) {
      first_ = &node;
      link(node, node);
    } else {
      link(*(first_->*kLink).previous_, node);
      link(node, *first_);
    }
  }

  // REQUIRES: in this ring.
  void erase(T& node) {
    auto& gone = node.*kLink;
    if (gone.next_ == &node) {
      first_ = nullptr;
    } else {
      if (first_ == &node) first_ = gone.next_;
      link(*gone.previous_, *gone.next_);
    }
    gone.next_ = nullptr;
    gone.previous_ = nullptr;
  }

 private:
  static void link(T& before, T& after) {
    (before.*kLink).next_ = &after;
    (after.*kLink).previous_ = &before;
  }

  T* first_ = nullptr;
};

}  // namespace weir
