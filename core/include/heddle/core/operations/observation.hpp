#pragma once

#include <any>
#include <functional>
#include <heddle/core/operations/kernel.hpp>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle {

/// Memory that a kernel keeps after a call: a packed copy of a weight, for example (see Kernel::kept_bytes).
struct KeptMemory {
  std::string name;  ///< name of the memory, the same for calls that keep the same
  std::size_t bytes = 0;
};

/// The part of a KernelCall that the operation fills in.
struct CallDescription {
  std::string_view direction;    ///< the method; of a GEMM, the product of a Linear: "input gradient"
  std::string_view variant;      ///< the optional parts that it computes or leaves out, "" or for example "added"
  std::string extents;           ///< "4096 x 512 x 2048"
  DType dtype = DType::float32;  ///< dtype of the activations
  Cost cost;
  KeptMemory kept = {};
};

/// A layer's call of a kernel, which can be repeated. `make` owns its arguments: it can be kept and called again as
/// long as the call's tensors have their memory.
struct KernelCall : CallDescription {
  struct Candidate {
    std::string name;
    int speed = 0;  ///< Implementation::speed
    std::function<void()> make;
  };

  std::string_view operation;  ///< "gemm"
  std::string_view key;        ///< timing_key of the problem that the layer selected by
  std::string_view by_speed;   ///< the choice of `auto` for that problem without times
  std::any problem;            ///< the call's own Problem, for example a GemmProblem

  std::function<void()> make;  ///< by the implementation that the layer selected
  /// All that support both the call and the problem that the layer selected by, the fastest by speed first. May be
  /// called only while the call is observed.
  std::function<std::vector<Candidate>()> ways;
};

struct KernelSelection {
  std::string_view operation;
  std::string problem;  ///< its description
  std::string_view implementation;
};

/// Is notified of every selection and of every call.
class KernelObserver {
 public:
  virtual ~KernelObserver() = default;

  virtual void selected(KernelSelection const& selection) { static_cast<void>(selection); }
  /// Must make the call, by call.make at the end; calls of other implementations before that change the results if the
  /// call reads memory that it writes.
  virtual void observe(Execution& execution, KernelCall const& call) = 0;
};

template <class Interface>
struct ObservedSelection {
  typename Interface::Problem problem;
  std::vector<Implementation> supporting = {};  ///< for `problem`, the fastest by speed first
  std::shared_ptr<Interface> selected = {};     ///< null: the kernel is unknown and idle
  KernelObserver* observer = nullptr;
  bool idle = false;  ///< calls are reported but not made
};

/// The bytes of all these tensors; a tensor that is read and written is listed twice.
inline double bytes_of(std::initializer_list<Tensor> tensors) {
  std::int64_t bytes = 0;
  for (Tensor const& tensor : tensors) {
    bytes += tensor.bytes();
  }
  return static_cast<double>(bytes);
}

/// Describes a call whose work is to read and write `tensors` (bytes_of); the first gives extents and dtype.
inline CallDescription traffic(std::string_view direction, std::initializer_list<Tensor> tensors,
                               std::string_view variant = "") {
  Tensor const& first = *tensors.begin();
  return {.direction = direction,
          .variant = variant,
          .extents = first.shape().to_string(),
          .dtype = first.dtype(),
          .cost = {0, bytes_of(tensors)}};
}

/// The base of an operation's observed kernel, which replaces the selected one, or of an idle kernel, which supports
/// everything and touches no memory. A derived class must override every method of its interface, also those with a
/// default: the default would call other methods where the implementation has a better one. Each method passes its
/// call on, with a description of it or a function that gives one:
///
///  void add(Execution& execution, Tensor const& into, Tensor const& from) override {
///    pass<&TensorOps::add>(execution, traffic("add", {into, into, from}), into, from);
///  }
template <class Interface>
class ObservedKernel : public Interface {
 public:
  using Problem = typename Interface::Problem;

  explicit ObservedKernel(ObservedSelection<Interface> selection)
      : key_(timing_key(selection.problem)), selection_(std::move(selection)) {}

  bool supports(Problem const& problem) const override {
    return selection_.selected == nullptr || selection_.selected->supports(problem);
  }
  std::size_t kept_bytes() const override {
    return selection_.selected == nullptr ? 0 : selection_.selected->kept_bytes();
  }

 protected:
  /// The kernel that this one replaces; null where it is unknown.
  Interface const* selected() const { return selection_.selected.get(); }

  /// Calls `method` of the selected kernel with these arguments, through the observer. The call's problem is its first
  /// argument's if that has one, otherwise the selection's.
  template <auto method, class Description, class... Arguments>
  void pass(Execution& execution, Description const& description, Arguments const&... arguments) {
    auto const call = [&execution, ... arguments = arguments](Interface& kernel) {
      (kernel.*method)(execution, arguments...);
    };
    KernelCall seen;
    if constexpr (std::is_invocable_v<Description>) {
      static_cast<CallDescription&>(seen) = description();
    } else {
      static_cast<CallDescription&>(seen) = description;
    }
    Problem const problem = problem_of(arguments...);
    seen.operation = Interface::operation;
    seen.key = key_;
    seen.by_speed = selection_.supporting.empty() ? std::string_view() : selection_.supporting.front().name;
    seen.problem = problem;
    seen.make = [call, kernel = selection_.idle ? nullptr : selection_.selected] {
      if (kernel != nullptr) {
        call(*kernel);
      }
    };
    seen.ways = [&] { return ways(problem, call); };
    selection_.observer->observe(execution, seen);
  }

 private:
  template <class First, class... Others>
  Problem problem_of(First const& first, Others const&...) const {
    if constexpr (requires { Problem(first.problem()); }) {
      return first.problem();
    } else {
      return selection_.problem;
    }
  }

  template <class Call>
  std::vector<KernelCall::Candidate> ways(Problem const& problem, Call const& call) const {
    std::vector<KernelCall::Candidate> all;
    for (Implementation const& entry : selection_.supporting) {
      auto kernel = std::static_pointer_cast<Interface>(entry.kernel);
      if (kernel->supports(problem)) {
        all.push_back({entry.name, entry.speed, [call, kernel] { call(*kernel); }});
      }
    }
    return all;
  }

  std::string key_;
  ObservedSelection<Interface> selection_;
};

}  // namespace heddle
