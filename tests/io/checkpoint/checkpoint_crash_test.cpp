#include <hdf5.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <heddle/core/base/host_name.hpp>
#include <random>
#include <thread>

#include "checkpoint_fixture.hpp"

namespace heddle {
namespace {

constexpr char const* all_points[] = {
    "temporary_created", "tensors_synced",  "tensors_read_back", "state_written", "state_synced", "read_back",
    "manifest_written",  "manifest_synced", "renamed",           "parent_synced", "pruned"};

class CheckpointCrashTest : public CheckpointTest {
 protected:
  /// Runs `work` in a child process that never returns into the test. Returns the child's id.
  static pid_t start_child(std::function<void()> const& work) {
    pid_t const child = ::fork();
    if (child == 0) {
      int code = 1;
      try {
        work();
        code = 0;
      } catch (Error const& error) {
        std::fprintf(stderr, "child: %s\n", error.what());
      }
      ::_exit(code);
    }
    return child;
  }
  static int wait_for(pid_t child) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }

  /// The message of commit's error; "" where it succeeded.
  std::string commit_error(std::int64_t step, CheckpointStore::Observer const& observe = {}) const {
    return message_of<Error>([&] { SampleState(step).commit_to(store(), observe); });
  }

  std::int64_t newest_step() const {
    auto const newest = store().newest_verified([](std::string const& message) { ADD_FAILURE() << message; });
    if (!newest) {
      return 0;
    }
    expect_whole(*newest, newest->state().step);
    return newest->state().step;
  }

  /// Flips a bit of a file that is being written, at the byte that `position` returns for its content.
  void damage(char const* name, std::function<std::size_t(std::string const&)> const& position) const {
    for (auto const& entry : fs::directory_iterator(run_ / "checkpoints")) {
      if (entry.path().filename().string().starts_with(".tmp-step-")) {
        std::string content = read_whole(entry.path() / name);
        content.at(position(content)) ^= 4;
        write_file(entry.path() / name, content);
      }
    }
  }
};

TEST_F(CheckpointCrashTest, PointsComeInTheOrderOfThePromise) {
  std::vector<std::string> points;
  EXPECT_EQ(commit_error(1, [&](std::string_view point) { points.emplace_back(point); }), "");
  EXPECT_THAT(points, ::testing::ElementsAreArray(all_points));
}

TEST_F(CheckpointCrashTest, KilledAtAnyPointLeavesTheOldOrTheNewCheckpoint) {
  std::int64_t step = 1;
  commit(step);
  for (char const* kill_point : all_points) {
    SCOPED_TRACE(kill_point);
    bool const renamed = std::string(kill_point) == "renamed" || std::string(kill_point) == "parent_synced" ||
                         std::string(kill_point) == "pruned";
    int const status = wait_for(start_child([&] {
      SampleState(step + 1).commit_to(store(), [&](std::string_view point) {
        if (point == kill_point) {
          ::kill(::getpid(), SIGKILL);
        }
      });
    }));
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    EXPECT_EQ(newest_step(), renamed ? step + 1 : step);
    step += 2;
    EXPECT_EQ(commit_error(step), "");
    EXPECT_EQ(newest_step(), step);
    EXPECT_THAT(names(), Each(StartsWith("step-"))) << "a leftover was not cleaned up";
  }
}

TEST_F(CheckpointCrashTest, KilledInItsFirstCheckpointIsAFreshStart) {
  wait_for(start_child([&] {
    SampleState(1).commit_to(store(), [](std::string_view point) {
      if (point == "manifest_synced") {
        ::kill(::getpid(), SIGKILL);
      }
    });
  }));
  EXPECT_FALSE(names().empty());
  EXPECT_EQ(newest_step(), 0);
  EXPECT_EQ(commit_error(1), "");
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
}

TEST_F(CheckpointCrashTest, KilledAtRandomMomentsNeverLosesWhatWasCommitted) {
  std::mt19937 random(7);
  std::int64_t step = 0;
  for (int round = 0; round < 12; ++round) {
    int progress[2];
    ASSERT_EQ(::pipe(progress), 0);
    pid_t const child = start_child([&] {
      for (std::int64_t next = step + 1;; ++next) {
        SampleState(next).commit_to(store(2));
        [[maybe_unused]] ssize_t const written = ::write(progress[1], &next, sizeof next);
      }
    });
    ::close(progress[1]);
    std::this_thread::sleep_for(std::chrono::milliseconds(std::uniform_int_distribution<>(1, 60)(random)));
    ::kill(child, SIGKILL);
    wait_for(child);
    std::int64_t committed = step;
    while (::read(progress[0], &committed, sizeof committed) == sizeof committed) {
    }
    ::close(progress[0]);
    std::int64_t const newest = newest_step();
    ASSERT_GE(newest, committed);
    ASSERT_LE(newest, committed + 1);
    step = newest;
  }
}

TEST_F(CheckpointCrashTest, ReadBackNoticesWhatTheDiskChanged) {
  commit(1);
  struct Damage {
    char const* after;
    char const* file;
    std::function<std::size_t(std::string const&)> position;
  };
  Damage const damages[] = {
      {"tensors_synced", "tensors-00000.h5", [](std::string const&) { return 0; }},
      {"tensors_synced", "tensors-00000.h5", [](std::string const& content) { return content.size() / 2; }},
      {"tensors_synced", "tensors-00000.h5", [](std::string const& content) { return content.size() - 1; }},
      {"state_synced", "state.h5", [](std::string const&) { return 0; }},
      {"state_synced", "state.h5", [](std::string const& content) { return content.find("seed = 1"); }},
      {"state_synced", "state.h5", [](std::string const& content) { return content.find("spm"); }},
  };
  for (Damage const& one : damages) {
    std::string const error = commit_error(2, [&](std::string_view point) {
      if (point == one.after) {
        damage(one.file, one.position);
      }
    });
    expect_contains(error, {"checkpoint of step 2 was not written: ", "read back is not what was written"});
    EXPECT_THAT(names(), ElementsAre("step-00000001"));
  }
}

TEST_F(CheckpointCrashTest, DamageAfterTheReadBackIsRejectedOnResuming) {
  commit(1);
  EXPECT_EQ(commit_error(2,
                         [&](std::string_view point) {
                           if (point == "tensors_read_back") {
                             damage("tensors-00000.h5", [](std::string const& content) { return content.size() / 2; });
                           }
                         }),
            "");
  std::vector<std::string> reports;
  auto const newest = store().newest_verified([&](std::string const& message) { reports.push_back(message); });
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->state().step, 1);
  EXPECT_THAT(reports, ElementsAre(HasSubstr("SHA-256")));
}

TEST_F(CheckpointCrashTest, AFileThatCannotGrowIsAClearErrorAndLeavesNothing) {
  commit(1);
  for (rlim_t limit : {rlim_t{500}, rlim_t{1000000}, rlim_t{2500000}}) {
    int const status = wait_for(start_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      rlimit const small{limit, RLIM_INFINITY};
      ::setrlimit(RLIMIT_FSIZE, &small);
      std::string const error = commit_error(2);
      bool const clear = error.find("checkpoint of step 2 was not written") != error.npos &&
                         error.find("could not be written: File too large") != error.npos;
      if (!clear || names() != std::vector<std::string>{"step-00000001"}) {
        throw Error("something was left, or the error was unclear: " + error);
      }
      rlimit const large{RLIM_INFINITY, RLIM_INFINITY};
      ::setrlimit(RLIMIT_FSIZE, &large);
      SampleState(2).commit_to(store());
      if (H5close() < 0) {  // without the driver HDF5 crashes here, and at exit, after a failed write
        throw Error("HDF5 cannot shut down");
      }
    }));
    EXPECT_EQ(status, 0) << limit;
    EXPECT_EQ(newest_step(), 2);
    fs::remove_all(run_ / "checkpoints/step-00000002");
  }
}

TEST_F(CheckpointCrashTest, TooLittleSpaceIsSaidBeforeAnythingIsWritten) {
  commit(1);
  LocalTensors huge;
  huge.add({"huge", {std::int64_t{1} << 42}}, {});
  CheckpointContents contents;
  contents.state.step = 2;
  EXPECT_THAT(message_of<Error>([&] { store().commit(Communicator::self(), contents, huge, 1); }),
              ::testing::MatchesRegex(".*: 175921860[0-9]+ bytes are needed, [0-9]+ are free"));
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
}

TEST_F(CheckpointCrashTest, AnUnwritablePlaceIsAClearError) {
  write_file(run_ / "file", "");
  CheckpointStore blocked(run_ / "file" / "checkpoints", 3);
  try {
    SampleState(1).commit_to(blocked);
    FAIL() << "wrote a checkpoint below a file";
  } catch (Error const& error) {
    expect_contains(error.what(), {"checkpoint of step 1 was not written", "Not a directory"});
  }
}

TEST_F(CheckpointCrashTest, LeftoversOfALivingWriterStay) {
  commit(1);
  pid_t const child = start_child([&] {
    SampleState(5).commit_to(store(), [&](std::string_view point) {
      if (point == "temporary_created") {
        ::raise(SIGSTOP);
      }
    });
  });
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  // A writer in another container: no process here has its process id, although the host has its name.
  fs::path const other = run_ / "checkpoints" / (".tmp-step-00000006-" + host_name() + "-2147483647");
  fs::create_directory(other);
  commit(2);
  EXPECT_THAT(names(), Contains(StartsWith(".tmp-step-00000005-")));
  EXPECT_TRUE(fs::exists(other));
  ::kill(child, SIGCONT);
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(newest_step(), 5);
  commit(6);
  EXPECT_THAT(names(), Each(Not(StartsWith(".tmp"))));
}

// A dead writer of another container, whose process id belongs to a living process here, and one of another host.
TEST_F(CheckpointCrashTest, LeftoversOfADeadWriterGoWhateverTheirNamesSay) {
  commit(1);
  for (std::string const& writer : {host_name() + "-" + std::to_string(::getppid()), std::string("elsewhere-1")}) {
    fs::create_directory(run_ / "checkpoints" / (".tmp-step-00000002-" + writer));
  }
  commit(3);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000003"));
}

}  // namespace
}  // namespace heddle
