#include <sys/utsname.h>

#include <cstdio>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/checkpoint/memory_store.hpp>
#include <random>

#include "dist/synthetic_model.hpp"
#include "torture.hpp"
#include "watch/decorated_backend.hpp"

namespace {

/// A name that replaces this host's; "": none does.
std::string virtual_host;

}  // namespace

extern "C" int gethostname(char* name, std::size_t size) noexcept {
  utsname host{};
  if (::uname(&host) != 0) {
    return -1;
  }
  std::snprintf(name, size, "%s", virtual_host.empty() ? host.nodename : virtual_host.c_str());
  return 0;
}

namespace heddle {
namespace {

/// Flips a bit of the next message that this rank receives.
struct Damage {
  std::int64_t bit = -1;  ///< of the message, modulo its length; -1: none
};

class DamagingBackend final : public DecoratedBackend {
 public:
  DamagingBackend(std::shared_ptr<CommunicatorBackend> inner, std::shared_ptr<Damage> damage)
      : DecoratedBackend(inner, world_group(*inner)), damage_(std::move(damage)) {}

 protected:
  void after(CollectiveCall const& call) noexcept override {
    if (call.collective == CollectiveOp::receive && !call.starts && damage_->bit >= 0) {
      std::int64_t const bytes = call.output.bytes() - 3;  // the last ones fill a word
      std::int64_t const bit = damage_->bit % (8 * bytes);
      static_cast<std::uint8_t*>(call.output.raw())[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
      damage_->bit = -1;
    }
  }
  std::shared_ptr<CommunicatorBackend> decorate(std::shared_ptr<CommunicatorBackend> part, int /*color*/,
                                                NamedGroup /*group*/) override {
    return part;
  }

 private:
  std::shared_ptr<Damage> damage_;
};

/// Each rank is a host of its own, with a copy of its buddy's part of the checkpoint in memory.
class MemoryCopies : public DistTest {
 protected:
  MemoryCopies() {
    virtual_host = "host" + std::to_string(world_.rank());
    if (world_.rank() == 0) {
      made_ = std::make_unique<TemporaryDirectory>();
    }
    root_ = broadcast_text(world_, made_ ? made_->path().string() : "");
    model_.step(0, 4);
  }
  ~MemoryCopies() override {
    world_.barrier();
    virtual_host.clear();
  }

  MemoryStore memory() const { return {damaged_, {.root = root_, .run = "runs/x", .identity = "0123456789abcdef"}}; }

  /// The error of a save of `step`; "" if it succeeded.
  std::string commit(std::int64_t step) {
    ModelStream tensors(model_.parallel, model_.model, model_.parameters, model_.optimizer);
    CheckpointContents contents;
    contents.state.step = step;
    return message_of<Error>([&] { memory().commit(contents, tensors, 0); });
  }

  /// The error of reading everything that is in memory; "" if it is what the model holds.
  std::string read(std::int64_t step) {
    auto checkpoint = memory().newest_verified([](std::string const&) {});
    if (!checkpoint || checkpoint->state().step != step) {
      return "it is not there";
    }
    std::vector<TensorSlice> slices;
    for (Parameter const& parameter : model_.parameters.all()) {
      for (std::string const& key : checkpoint->tensor(parameter.spec.name).keys) {
        slices.push_back({parameter.spec.name, key});
      }
    }
    std::string const error = message_of<Error>([&] { checkpoint->fetch(slices, damaged_); });
    if (!error.empty()) {
      return error;
    }
    bool same = true;
    std::string const unread = message_of<Error>([&] {
      for (Parameter const& parameter : model_.parameters.all()) {
        same = same && checkpoint->read(parameter.spec.name) == to_host<float>(parameter.value);
      }
    });
    return any_of(world_, !same || !unread.empty()) ? "it has other values" : "";
  }

  std::unique_ptr<TemporaryDirectory> made_;  ///< rank 0's
  fs::path root_;
  std::shared_ptr<Damage> damage_ = std::make_shared<Damage>();
  Communicator damaged_{std::make_shared<DamagingBackend>(session_.world().backend(), damage_)};
  SyntheticModel model_{state_of({1, world_.size(), 1, 1}), {}};
};

TEST_F(MemoryCopies, ABlockThatArrivesDamagedAtTheBuddyIsRefused) {
  ASSERT_EQ(commit(1), "");
  ASSERT_EQ(read(1), "");
  std::int64_t const cases = torture_count(10, 100);
  std::mt19937 random(7);  // the same on all ranks
  for (std::int64_t number = 0; number < cases; ++number) {
    std::int64_t const bit = random();
    damage_->bit = number % world_.size() == world_.rank() ? bit : -1;
    EXPECT_THAT(commit(2), HasSubstr("came damaged from rank")) << "bit " << bit;
    EXPECT_EQ(damage_->bit, -1) << "nothing was received";
    EXPECT_EQ(read(1), "") << "bit " << bit;
  }
  if (world_.rank() == 0) {
    print_figures(fmt::format("{} bits flipped on the way to the buddy: {}", cases,
                              HasFailure() ? "not all refused" : "each refused, the older checkpoint is whole"));
  }
}

TEST_F(MemoryCopies, ABlockThatArrivesDamagedFromTheBuddyIsRefused) {
  std::int64_t const cases = torture_count(10, 100);
  std::mt19937 random(8);  // the same on all ranks
  fs::path const directory = memory().directory();
  for (std::int64_t number = 0; number < cases; ++number) {
    ASSERT_EQ(commit(1), "");
    bool const lost = number % world_.size() == world_.rank();
    if (lost) {
      fs::remove_all(directory);
    }
    std::int64_t const bit = random();
    damage_->bit = lost ? bit : -1;
    EXPECT_THAT(read(1), HasSubstr("came damaged from rank")) << "bit " << bit;
    EXPECT_EQ(damage_->bit, -1) << "nothing was received";
    EXPECT_EQ(read(1), "") << "undamaged, from the buddy alone";
  }
  if (world_.rank() == 0) {
    print_figures(fmt::format("{} bits flipped on the way from it: {}", cases,
                              HasFailure() ? "not all refused" : "each refused"));
  }
}

}  // namespace
}  // namespace heddle
