#pragma once

#include <algorithm>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/adam.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/embedding.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/residual_norm.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/operations/timings.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

namespace kernel_registry_errors {

/// Both throw ConfigError.
[[noreturn]] void name_is_taken(std::string_view operation, std::string_view name, std::string_view origin);
/// `names` are the registered ones; `problem` is in words.
[[noreturn]] void none_selected(std::string_view operation, std::string_view choice,
                                std::vector<std::string> const& names, std::string const& problem);

}  // namespace kernel_registry_errors

/// The implementations of one operation by name.
template <class Interface>
class KernelRegistry {
 public:
  using Problem = typename Interface::Problem;

  struct Entry {
    std::string name;
    /// `auto` takes the supporting implementation with the highest: reference 0, kokkos 10, simd 15, onednn 20, avx512
    /// 25, or 15 on CPUs with AMX.
    int speed;
    std::string origin;  ///< "built-in" or the plug-in's path
    std::shared_ptr<Interface> kernel;
  };

  /// Throws ConfigError where the name is taken.
  void add(std::string name, int speed, std::shared_ptr<Interface> kernel) {
    for (Entry const& entry : entries_) {
      if (entry.name == name) {
        kernel_registry_errors::name_is_taken(Interface::operation, name, entry.origin);
      }
    }
    entries_.push_back({std::move(name), speed, origin_, std::move(kernel)});
  }

  /// The implementation `choice` names or, for "auto", of those that support the problem the fastest: by speed, but by
  /// measured times where the one that is fastest by speed has been timed for such problems. ConfigError says why not.
  std::shared_ptr<Interface> select(std::string_view choice, Problem const& problem) const {
    std::vector<Entry> supporting = by_speed();
    std::erase_if(supporting, [&](Entry const& entry) {
      return (choice != "auto" && choice != entry.name) || !entry.kernel->supports(problem);
    });
    if (supporting.empty()) {
      kernel_registry_errors::none_selected(Interface::operation, choice, names_of(entries_), describe(problem));
    }
    auto const times = timings_.find(timing_key(problem));
    std::string const name =
        measured_choice(times == timings_.end() ? TimesByName() : times->second, names_of(supporting));
    auto const selected = std::find_if(supporting.begin(), supporting.end(), [&](auto& e) { return e.name == name; });
    return wrapper_ ? wrapper_(problem, selected->kernel) : selected->kernel;
  }

  /// Times of this machine, which `auto` goes by from now on.
  void set_timings(TimesByProblem timings) { timings_ = std::move(timings); }

  using Wrapper =
      std::function<std::shared_ptr<Interface>(Problem const& problem, std::shared_ptr<Interface> const& selected)>;
  /// Every selection is from now on what `wrapper` makes of it: something that times each call, for example.
  void set_wrapper(Wrapper wrapper) { wrapper_ = std::move(wrapper); }

  std::vector<Entry> const& entries() const { return entries_; }
  /// The fastest by speed first; of equally fast ones the one that was registered first.
  std::vector<Entry> by_speed() const {
    std::vector<Entry> sorted = entries_;
    std::stable_sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return a.speed > b.speed; });
    return sorted;
  }
  /// What entries added from now on say of where they come from.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 private:
  static std::vector<std::string> names_of(std::vector<Entry> const& entries) {
    std::vector<std::string> names;
    names.reserve(entries.size());
    for (Entry const& entry : entries) {
      names.push_back(entry.name);
    }
    return names;
  }

  std::vector<Entry> entries_;
  std::string origin_ = "built-in";
  TimesByProblem timings_;
  Wrapper wrapper_;
};

/// Every operation's implementations. Filled by registration functions and plug-ins, then only read.
struct KernelRegistries {
  KernelRegistry<Gemm> gemm;
  KernelRegistry<Attention> attention;
  KernelRegistry<ResidualNorm> residual_norm;
  KernelRegistry<Activation> activation;
  KernelRegistry<SoftmaxCrossEntropy> softmax_cross_entropy;
  KernelRegistry<Embedding> embedding;
  KernelRegistry<Adam> adam;
  KernelRegistry<TensorOps> tensor_ops;

  /// What `auto` goes by from now on, for every operation.
  void set_timings(KernelTimings const& timings) {
    for_each([&]<class Interface>(KernelRegistry<Interface>& registry) {
      auto const found = timings.find(Interface::operation);
      registry.set_timings(found == timings.end() ? TimesByProblem() : found->second);
    });
  }

  /// Calls `visit(registry)` for each operation.
  template <class Visitor>
  void for_each(Visitor&& visit) {
    visit(gemm), visit(attention), visit(residual_norm), visit(activation), visit(softmax_cross_entropy),
        visit(embedding), visit(adam), visit(tensor_ops);
  }
};

}  // namespace heddle
