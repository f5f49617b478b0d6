#pragma once

#include <memory>

// Debian's libgloo-dev leaves this header out although tcp/pair.h includes it. Names and layout
// only: Horon calls none of it. Found after the system's folders, so a real one wins.
namespace gloo {

template <typename T>
class NonOwningPtr final {
  std::shared_ptr<T> ptr_;
};

template <typename T>
class WeakNonOwningPtr final {
  std::weak_ptr<T> ptr_;
};

template <typename T>
class ShareableNonOwningPtr final {
  std::shared_ptr<T> ptr_;
};

}  // namespace gloo
