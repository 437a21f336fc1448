#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <heddle/io/files/pending_directory.hpp>
#include <heddle/io/files/regular_file.hpp>

#include "test.hpp"

namespace heddle {
namespace {

using Target = PendingDirectory::Target;

class PendingDirectoryTest : public testing::Test {
 protected:
  /// The output of a command: files with its name as their text.
  static std::unique_ptr<PendingDirectory> written(fs::path const& target, std::string const& text,
                                                   Target allowed = Target::unused) {
    auto directory = std::make_unique<PendingDirectory>(target, allowed);
    replace_file(directory->path() / "config.toml", text);
    fs::create_directory(directory->path() / "checkpoints");
    return directory;
  }

  TemporaryDirectory directory_;
};

TEST_F(PendingDirectoryTest, AppearsWholeWithItsParents) {
  {
    auto const output = written(directory_ / "models" / "a" / "", "mine");
    EXPECT_FALSE(fs::exists(directory_ / "models" / "a"));
    output->commit();
  }
  EXPECT_EQ(read_whole(directory_ / "models" / "a" / "config.toml"), "mine");
  EXPECT_TRUE(fs::is_directory(directory_ / "models" / "a" / "checkpoints"));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_ / "models"), {}), 1);
}

TEST_F(PendingDirectoryTest, FailureRemovesOnlyWhatWasWritten) {
  written(directory_ / "new" / "a", "mine").reset();
  EXPECT_THAT(directory_.names(), IsEmpty());
  auto failing = written(directory_ / "models" / "a", "mine");
  written(directory_ / "models" / "b", "theirs")->commit();
  replace_file(directory_ / "models" / "notes.txt", "somebody's");
  failing.reset();
  EXPECT_EQ(read_whole(directory_ / "models" / "b" / "config.toml"), "theirs");
  EXPECT_EQ(read_whole(directory_ / "models" / "notes.txt"), "somebody's");
  EXPECT_FALSE(fs::exists(directory_ / "models" / "a"));
}

TEST_F(PendingDirectoryTest, OfTwoWithOneTargetTheSecondIsRefused) {
  for (bool const there : {false, true}) {
    fs::path const target = directory_ / (there ? "there" : "missing");
    if (there) {
      fs::create_directory(target);
    }
    auto const first = written(target, "first");
    auto const second = written(target, "second");
    replace_file(second->path() / "before.txt", "second's first entry");
    second->commit();
    expect_usage_error([&] { first->commit(); }, "name a new directory");
    EXPECT_EQ(read_whole(target / "config.toml"), "second");
    expect_usage_error([&] { PendingDirectory const third(target); }, "name a new directory");
  }
}

TEST_F(PendingDirectoryTest, OfTwoWithNoNameInCommonTheSecondIsRefused) {
  for (bool const there : {false, true}) {
    fs::path const target = directory_ / (there ? "there" : "missing");
    if (there) {
      fs::create_directory(target);
    }
    auto const first = written(target, "a run");
    PendingDirectory second(target);
    replace_file(second.path() / "model.safetensors", "an export");
    second.commit();
    expect_usage_error([&] { first->commit(); }, "has files, such as model.safetensors; name a new directory");
    EXPECT_FALSE(fs::exists(target / "config.toml"));
    EXPECT_EQ(read_whole(target / "model.safetensors"), "an export");
  }
}

TEST_F(PendingDirectoryTest, ErrorsNameTheTarget) {
  for (fs::path const& target : {directory_.path(), directory_ / "a.b"}) {
    PendingDirectory const output(target, Target::any);
    std::string const file = (output.path() / "checkpoints").string();
    EXPECT_EQ(with_targets(file + ": no room; " + output.path().string() + " stays"),
              (target / "checkpoints").string() + ": no room; " + target.string() + " stays");
  }
  for (std::string const text : {"", "a/.b.partial/c", "a/.b.1a2b3c4d.partially", "1a2b3c4d.partial"}) {
    EXPECT_EQ(with_targets(text), text);
  }
}

TEST_F(PendingDirectoryTest, ARefusedOneLeavesTheTargetAsItWas) {
  auto const output = written(directory_.path(), "mine", Target::any);
  replace_file(directory_ / "config.toml", "theirs");
  EXPECT_THROW(output->commit(), UsageError);
  EXPECT_EQ(read_whole(directory_ / "config.toml"), "theirs");
  EXPECT_FALSE(fs::exists(directory_ / "checkpoints")) << "it comes first";
  EXPECT_EQ(read_whole(output->path() / "config.toml"), "mine");
}

TEST_F(PendingDirectoryTest, ReplacesWhatItMay) {
  directory_.write("config.toml", "old");
  directory_.write("obsolete.toml", "old");
  directory_.write("notes.txt", "somebody's");
  auto const is_toml = [](std::string const& name) { return name.ends_with(".toml"); };
  written(directory_.path(), "new", Target::any)->commit(is_toml);
  EXPECT_THAT(directory_.names(), ElementsAre("checkpoints", "config.toml", "notes.txt"));
  EXPECT_EQ(read_whole(directory_ / "config.toml"), "new");
  fs::remove(directory_ / "config.toml");
  fs::create_symlink("notes.txt", directory_ / "config.toml");
  auto const again = std::make_unique<PendingDirectory>(directory_.path(), Target::any);
  expect_data_error([&] { again->commit(is_toml); }, "is a symbolic link");
  EXPECT_EQ(read_whole(directory_ / "notes.txt"), "somebody's");
}

TEST_F(PendingDirectoryTest, WhatAKilledProcessLeftIsRemovedByTheNext) {
  for (bool const there : {false, true}) {
    fs::path const target = directory_ / (there ? "there" : "missing");
    if (there) {
      fs::create_directory(target);
    }
    auto const living = written(target, "living");
    pid_t const child = ::fork();
    if (child == 0) {
      auto const killed = written(target, "killed");
      ::raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    fs::path const parent = living->path().parent_path();
    EXPECT_EQ(std::distance(fs::directory_iterator(parent), {}), 2);
    written(target, "next")->commit();
    EXPECT_EQ(read_whole(target / "config.toml"), "next");
    EXPECT_EQ(read_whole(living->path() / "config.toml"), "living");
    EXPECT_EQ(std::distance(fs::directory_iterator(parent), {}), there ? 3 : 2);
    fs::remove_all(target / "config.toml");
    fs::remove_all(target);
  }
}

TEST_F(PendingDirectoryTest, OneKilledWhileItMovedOldFilesAsideLosesNone) {
  directory_.write("a.toml", "old a");
  directory_.write("b.toml", "old b");
  directory_.write("config.toml", "old");
  pid_t const child = ::fork();
  if (child == 0) {
    written(directory_.path(), "new", Target::any)->commit([](std::string const& name) {
      return name.ends_with(".toml") && (name != "config.toml" || ::raise(SIGKILL) == 0);
    });
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(directory_ / "a.toml") || fs::exists(directory_ / "b.toml"));
  PendingDirectory(directory_.path(), Target::any).path();
  EXPECT_THAT(directory_.names(), ElementsAre("a.toml", "b.toml", "config.toml"));
  EXPECT_EQ(read_whole(directory_ / "a.toml"), "old a");
  EXPECT_EQ(read_whole(directory_ / "config.toml"), "old");
}

TEST_F(PendingDirectoryTest, OneKilledAfterThatIsEndedByTheNext) {
  fs::path const left = directory_ / ".1a2b3c4d.partial";
  fs::create_directories(left / ".replaced-all");
  replace_file(left / ".replaced-all" / "a.toml", "old");
  replace_file(left / ".replaced-all" / "config.toml", "old");
  replace_file(left / "config.toml", "new");
  directory_.write("b.toml", "new, in its place already");
  PendingDirectory(directory_.path(), Target::any).path();
  EXPECT_THAT(directory_.names(), ElementsAre("b.toml", "config.toml"));
  EXPECT_EQ(read_whole(directory_ / "config.toml"), "new");
}

TEST_F(PendingDirectoryTest, AnotherThingIsNoTarget) {
  directory_.write("file", "kept");
  fs::create_symlink("nothing", directory_ / "dangling");
  for (std::string const& target :
       {(directory_ / "file").string(), (directory_ / "dangling").string(), std::string()}) {
    expect_usage_error([&] { PendingDirectory const output(target, Target::any); },
                       "\"" + target + "\" is not a directory");
  }
  expect_error([&] { PendingDirectory const output(directory_ / "file" / "a" / "b"); }, "Not a directory");
  EXPECT_THAT(directory_.names(), SizeIs(2));
}

}  // namespace
}  // namespace heddle
